package serve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

const (
	// othersInterval is how often the reports of the other dispatchers are read from the store.
	othersInterval = 2 * time.Second
	// othersTimeout bounds one read.
	othersTimeout = 5 * time.Second
	// maxAdvertised bounds --advertise-hosts: a host tries the addresses of a dispatcher one after the other.
	maxAdvertised = 4
)

// others are the other live dispatchers, as they reported last. The zero value knows none. It is safe for concurrent use.
type others struct {
	last atomic.Pointer[[]*configv1.DispatcherReport]
}

func (o *others) set(all []*configv1.DispatcherReport, own string) {
	all = slices.DeleteFunc(all, func(d *configv1.DispatcherReport) bool { return d.GetStatus().GetDispatcherId() == own })
	o.last.Store(&all)
}

func (o *others) all() []*configv1.DispatcherReport {
	if p := o.last.Load(); p != nil {
		return *p
	}
	return nil
}

// peers are the others that hosts can dial.
func (o *others) peers() []*hostv1.Peer {
	var out []*hostv1.Peer
	for _, d := range o.all() {
		if s := d.GetStatus(); len(s.GetAddresses()) > 0 {
			out = append(out, &hostv1.Peer{DispatcherId: s.GetDispatcherId(), Addresses: s.GetAddresses()})
		}
	}
	return out
}

// serve reports whether another dispatcher judges by the configuration of a digest and has a host for the hook.
func (o *others) serve(hook *match.Hook, digest string) bool {
	return slices.ContainsFunc(o.all(), func(d *configv1.DispatcherReport) bool {
		s := d.GetStatus()
		return s.GetJudging() && s.GetApplied().GetDigest() == digest && d.GetUnservedMore() == 0 && !service.LacksHost(d, hook)
	})
}

// watchOthers reads the reports of the other dispatchers until ctx ends, and passes their addresses on to hosts.
func (a *controlPlane) watchOthers(ctx context.Context) {
	t := time.NewTicker(othersInterval)
	defer t.Stop()
	for {
		if err := a.readOthers(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("the other dispatchers are not known", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *controlPlane) readOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	all, err := a.stores.objects.Dispatchers(ctx)
	if err != nil {
		return err
	}
	a.others.set(all, a.id)
	a.hosts.UpdatePeers(a.others.peers())
	return nil
}

// servedElsewhere returns the fail-closed hooks that have no host here, and one at another dispatcher.
func (a *app) servedElsewhere() []string {
	digest := a.store.Configuration().Digest
	var out []string
	for _, h := range a.router.Unserved() {
		if h.Decides() && h.FailsClosed() && a.control.others.serve(h, digest) {
			out = append(out, h.ID.Configuration+"/"+h.ID.Name)
		}
	}
	return out
}

// advertisedAddresses completes the addresses of --advertise-hosts with the port of the listener for hosts.
func advertisedAddresses(given []string, listener net.Addr) []string {
	_, port, _ := net.SplitHostPort(listener.String())
	out := make([]string, len(given))
	for i, address := range given {
		if _, _, err := net.SplitHostPort(address); err == nil {
			out[i] = address
		} else {
			out[i] = net.JoinHostPort(address, port)
		}
	}
	return out
}

// checkAdvertised refuses addresses that hosts could not dial.
func checkAdvertised(given []string) error {
	if len(given) > maxAdvertised {
		return fmt.Errorf("--advertise-hosts: %d addresses; give at most %d", len(given), maxAdvertised)
	}
	for _, address := range given {
		host, port, err := net.SplitHostPort(address)
		if err != nil { // an address without a port
			host, port = address, "1"
		}
		_, notIP := netip.ParseAddr(host)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || notIP != nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			return fmt.Errorf("--advertise-hosts %q: must be an IP address or a DNS name, and perhaps a port, as in 10.0.0.7:8444", address)
		}
	}
	return nil
}
