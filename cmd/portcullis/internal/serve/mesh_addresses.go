package serve

import (
	"net"
	"net/netip"
	"net/url"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
)

// webhookOptions returns the options of the client of webhooks that no flag sets.
func (a *app) webhookOptions(metrics prometheus.Registerer) outbound.Options {
	return outbound.Options{Metrics: metrics, Propagator: a.telemetry.Propagator, Memory: a.memory, Refused: a.meshAddresses}
}

// meshAddresses are the addresses of the mesh that this dispatcher knows, besides the addresses of its machine. Hosts reach it there, as well as the
// dispatchers that share its store, and API servers by spec.registration.
func (a *app) meshAddresses() []netip.Prefix {
	known := slices.Clone(a.control.advertised)
	for _, s := range a.control.others.all() {
		known = append(known, s.GetStatus().GetAddresses()...)
	}
	c := a.store.Configuration()
	for _, o := range c.Objects {
		if o.Cluster == nil || o.Cluster.Spec.Registration == nil {
			continue
		}
		if u, err := url.Parse(o.Cluster.Spec.Registration.URL); err == nil {
			known = append(known, net.JoinHostPort(u.Hostname(), "443"))
		}
	}
	return addressesOf(known)
}

// addressesOf are the hosts of HOST:PORT that are addresses. Names are left out.
func addressesOf(known []string) (all []netip.Prefix) {
	for _, k := range known {
		host, _, err := net.SplitHostPort(k)
		if err != nil {
			continue
		}
		if a, err := netip.ParseAddr(host); err == nil {
			a = a.Unmap().WithZone("")
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}
