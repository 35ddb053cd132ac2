package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const apiServerCategory = "api server"

// apiServer is the way to the API server of a cluster. The zero value looks at none.
type apiServer struct {
	connect.APIServer

	wanted bool
}

func (a *apiServer) bind(f *pflag.FlagSet) {
	f.BoolVar(&a.wanted, "api-server", false, "look also at the entries of a cluster")
	a.Bind(f)
}

// bridgeAddress is a listener of a mesh as entries name it. Paths are left out: they may have a capability.
type bridgeAddress struct{ host, port, bundle string }

// entriesOf finds the entries that call a mesh, by the clusters in their paths.
type entriesOf struct {
	clusters map[string]int // entries by cluster
	bridges  map[bridgeAddress]bool
	accounts map[string]bool // of dispatchers, that belong to such entries
}

// add takes a webhook of a configuration.
func (e *entriesOf) add(configuration string, c *admissionregistrationv1.WebhookClientConfig) {
	cluster := registration.Reviews(c)
	if cluster == "" || c.URL == nil {
		return
	}
	u, err := url.Parse(*c.URL)
	if err != nil {
		return
	}
	e.clusters[cluster]++
	e.accounts[registrar.AccessName(configuration)] = true
	e.bridges[bridgeAddress{u.Hostname(), cmp.Or(u.Port(), "443"), string(c.CABundle)}] = true
}

// clusterEntries checks the entries in a cluster: that there are some, and that their caBundles vouch for the listener of the mesh.
func (r *report) clusterEntries(ctx context.Context, a apiServer) {
	if !a.wanted {
		return
	}
	found, err := a.find(ctx)
	if err != nil {
		r.fail(apiServerCategory, "the API server shows its webhook configurations", err, "look at --kubeconfig and --kube-context, and at the RBAC of that user")
		return
	}
	if len(found.clusters) == 0 {
		r.fail(apiServerCategory, "the cluster has entries of a mesh", errors.New("no webhook configuration has the URL of a bridge"),
			"`portcullis cluster register NAME` makes them")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(found.clusters)) {
		r.ok(apiServerCategory, "the cluster has entries of a mesh", fmt.Sprintf("%d of cluster %s", found.clusters[name], name))
	}
	byAddress := func(a, b bridgeAddress) int {
		return strings.Compare(a.host+" "+a.port+" "+a.bundle, b.host+" "+b.port+" "+b.bundle)
	}
	for _, bridge := range slices.SortedFunc(maps.Keys(found.bridges), byAddress) {
		r.bundle(ctx, bridge)
	}
	r.accessTokens(ctx, &a, found.accounts)
}

func (a *apiServer) find(ctx context.Context) (*entriesOf, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	client, err := admissionregistrationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := &entriesOf{clusters: map[string]int{}, bridges: map[bridgeAddress]bool{}, accounts: map[string]bool{}}
	for i := range mutating.Items {
		for j := range mutating.Items[i].Webhooks {
			found.add(mutating.Items[i].Name, &mutating.Items[i].Webhooks[j].ClientConfig)
		}
	}
	for i := range validating.Items {
		for j := range validating.Items[i].Webhooks {
			found.add(validating.Items[i].Name, &validating.Items[i].Webhooks[j].ClientConfig)
		}
	}
	return found, nil
}

// bundle checks that a caBundle vouches for the certificate of the listener, as an API server does.
func (r *report) bundle(ctx context.Context, bridge bridgeAddress) {
	address := net.JoinHostPort(bridge.host, bridge.port)
	description := "the caBundle of the entries vouches for the mesh at " + address
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: bridge.host}
	if bridge.bundle != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(bridge.bundle))
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	switch wrong := (*tls.CertificateVerificationError)(nil); {
	case err == nil:
		_ = conn.Close() // it has done its work
		r.ok(apiServerCategory, description, "")
	case errors.As(err, &wrong):
		r.fail(apiServerCategory, description, err, "`portcullis cluster register --ca FILE --apply` writes the authorities of the mesh into the entries")
	default:
		r.warn(apiServerCategory, description, "not known, this machine does not reach it: "+err.Error(), "run the check in the network of the API server")
	}
}
