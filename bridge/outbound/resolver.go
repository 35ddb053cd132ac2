package outbound

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// Service is a port of a service of a cluster, as the clientConfig of a hook names it. It is comparable.
type Service struct {
	// Cluster is the cluster whose review is judged: a hook for all clusters is, in each, a service of that cluster.
	Cluster string
	// Namespace and Name identify the service.
	Namespace, Name string
	// Port is the port of the service, 443 by default.
	Port int32
}

// Host is the DNS name of the service, which its certificate has to carry: name.namespace.svc.
func (s Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

// Resolver finds services.
type Resolver interface {
	// Resolve returns the address to dial, host:port, for a service. The host may be a name. It is asked before every call
	// and answers from memory; it may be called from any goroutine.
	Resolve(ctx context.Context, s Service) (address string, err error)
}

// ClusterDNS resolves every service to its own DNS name: for a mesh that is part of the only cluster whose services are
// called. kube-apiserver does so without an aggregator (NewDefaultServiceResolver of k8s.io/apiserver).
type ClusterDNS struct{}

var _ Resolver = ClusterDNS{}

// Resolve implements [Resolver].
func (ClusterDNS) Resolve(_ context.Context, s Service) (string, error) {
	return net.JoinHostPort(s.Host(), strconv.Itoa(int(s.Port))), nil
}

// Table resolves services to addresses that were written down: for clusters that the mesh is not part of. The table is
// not changed while it is in use.
type Table struct {
	// Addresses are host:port by service. An entry without Cluster is for all clusters, one without Port for all ports;
	// the cluster is looked at first.
	Addresses map[Service]string
	// Next resolves the services that are not in the table; nil means that they are not found.
	Next Resolver
}

var _ Resolver = Table{}

// Resolve implements [Resolver].
func (t Table) Resolve(ctx context.Context, s Service) (string, error) {
	for _, key := range []Service{
		s,
		{Cluster: s.Cluster, Namespace: s.Namespace, Name: s.Name},
		{Namespace: s.Namespace, Name: s.Name, Port: s.Port},
		{Namespace: s.Namespace, Name: s.Name},
	} {
		if address, ok := t.Addresses[key]; ok {
			return address, nil
		}
	}
	if t.Next != nil {
		return t.Next.Resolve(ctx, s)
	}
	return "", fmt.Errorf("no address is known for port %d of service %s/%s of cluster %q: write one down",
		s.Port, s.Namespace, s.Name, s.Cluster)
}
