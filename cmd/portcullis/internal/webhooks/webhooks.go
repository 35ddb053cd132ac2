// Package webhooks has the flags by which an operator says as whom, and at which addresses, `portcullis serve`, `dev` and `bridge` call webhooks.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
)

// serviceForm is how an operator writes an entry of the table of services.
const serviceForm = "[CLUSTER/]NAMESPACE/NAME[:PORT]=HOST:PORT"

// hangUpTimeout bounds the end of calls to webhooks after the last review, and of their connections.
const hangUpTimeout = 5 * time.Second

// Flags are the values of the flags.
type Flags struct {
	// Kubeconfig is the path of a kubeConfigFile of kube-apiserver's webhook plugins; empty for none.
	Kubeconfig string
	// Services are entries of the table of services: [CLUSTER/]NAMESPACE/NAME[:PORT]=HOST:PORT.
	Services []string
	// Networks are IP addresses and CIDRs that webhooks may have although they are refused by default.
	Networks []string
	// Refused are IP addresses and CIDRs that webhooks may not have.
	Refused []string
}

// Bind adds the flags.
func (c *Flags) Bind(f *pflag.FlagSet) {
	f.StringVar(&c.Kubeconfig, "webhook-kubeconfig", "",
		"file of who webhooks are called as, in the form of the kubeConfigFile of kube-apiserver's webhook plugins; "+
			"tokens and passwords go to hosts that a user is named by, or by a pattern such as *.policy.svc (default: without credentials)")
	f.StringSliceVar(&c.Services, "webhook-service", nil,
		"address of a service that a clientConfig names: "+serviceForm+"; may be given several times (default: its name in DNS)")
	f.StringSliceVar(&c.Networks, "webhook-network", nil,
		"IP address or CIDR where webhooks may be called although it is loopback, link-local, multicast or of this machine; may be given several times "+
			"(default: none; the addresses of --webhook-service are allowed)")
	f.StringSliceVar(&c.Refused, "webhook-refuse", nil,
		"IP address or CIDR where webhooks are not called, such as the Service or the load balancer of the mesh; may be given several times "+
			"(default: none; loopback, link-local and multicast addresses, this machine and the known dispatchers are refused anyway)")
}

// Client makes the client of webhooks: the flags complete o, and o.Refused has the addresses of the mesh.
func (c *Flags) Client(o outbound.Options, log *slog.Logger) (*outbound.Client, error) {
	if c.Kubeconfig != "" {
		identities, err := outbound.Kubeconfig(c.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--webhook-kubeconfig: %w", err)
		}
		if user := identities.Withheld(); user != "" {
			log.Warn("tokens, passwords and exec of --webhook-kubeconfig are not used for webhooks that no user is named by",
				"user", user, "remedy", "name a user by the host of each webhook that needs them (hooks.example.com:8443), or by a pattern (*.policy.svc)")
		}
		o.Identities = identities
	}
	table, err := parseServices(c.Services)
	if err != nil {
		return nil, err
	}
	if o.Networks, err = parseNetworks("--webhook-network", c.Networks); err != nil {
		return nil, err
	}
	refused, err := parseNetworks("--webhook-refuse", c.Refused)
	if err != nil {
		return nil, err
	}
	mesh := o.Refused
	o.Refused = func() []netip.Prefix {
		if mesh == nil {
			return refused
		}
		return append(mesh(), refused...)
	}
	o.Resolver = outbound.Table{Addresses: table, Next: outbound.ClusterDNS{}}
	return outbound.New(o)
}

// parseNetworks reads addresses and CIDRs.
func parseNetworks(flag string, entries []string) ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, 0, len(entries))
	var errs []error
	for _, entry := range entries {
		network, err := netip.ParsePrefix(entry)
		if address, single := netip.ParseAddr(entry); single == nil {
			network, err = address.WithZone("").Unmap().Prefix(address.Unmap().BitLen())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: want an IP address or a CIDR, as in 127.0.0.1 or 127.0.0.0/8", flag, entry))
		}
		networks = append(networks, network.Masked())
	}
	return networks, errors.Join(errs...)
}

func parseServices(entries []string) (map[outbound.Service]string, error) {
	table := make(map[outbound.Service]string, len(entries))
	var errs []error
	for _, entry := range entries {
		service, address, err := parseService(entry)
		if err == nil && table[service] != "" {
			err = errors.New("the service has an address already")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--webhook-service %q: %w", entry, err))
			continue
		}
		table[service] = address
	}
	return table, errors.Join(errs...)
}

// parseService reads one entry. A field of the service that is left out is zero, and means any.
func parseService(entry string) (s outbound.Service, address string, err error) {
	name, address, ok := strings.Cut(entry, "=")
	parts := strings.Split(name, "/")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return s, "", errors.New("want " + serviceForm)
	}
	if len(parts) == 3 {
		if s.Cluster = parts[0]; len(validation.IsDNS1123Subdomain(s.Cluster)) > 0 {
			return s, "", fmt.Errorf("%q is no name of a cluster", s.Cluster)
		}
		parts = parts[1:]
	}
	s.Namespace = parts[0]
	var port string
	if s.Name, port, ok = strings.Cut(parts[1], ":"); ok {
		if s.Port, err = parsePort(port); err != nil {
			return s, "", err
		}
	}
	for _, label := range []string{s.Namespace, s.Name} {
		if len(validation.IsDNS1123Label(label)) > 0 {
			return s, "", fmt.Errorf("%q is no name of a namespace or service; want %s", label, serviceForm)
		}
	}
	return s, address, checkAddress(address)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q is no address to dial: want HOST:PORT behind the =", address)
	}
	_, err = parsePort(port)
	return err
}

func parsePort(text string) (int32, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is no port: want 1 to 65535", text)
	}
	return int32(port), nil
}

// HangUp closes the connections to webhooks after the last review, within 5 s. It logs a failure.
func HangUp(ctx context.Context, client *outbound.Client, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, hangUpTimeout)
	defer cancel()
	if err := client.Close(ctx); err != nil {
		log.Warn("connections to webhooks are left open", "error", err)
	}
}
