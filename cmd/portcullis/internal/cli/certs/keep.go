package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// DefaultAuthoritySecret is the Secret of the authority that `certs keep` and the chart name.
const DefaultAuthoritySecret = "portcullis-ca" //nolint:gosec // a name

type keepCommand struct {
	config                             keep.Config
	servers, clients                   []string
	dir, entries                       string
	kubeconfig, kubeContext, namespace string
	timeout                            time.Duration
}

func newCertsKeepCommand() *cobra.Command {
	var c keepCommand
	cmd := &cobra.Command{
		Use:   "keep --server SECRET=NAME,... --client SECRET=IDENTITY",
		Short: "Make certificates in Secrets, renew them, and replace their authority",
		Long: `Keep makes the authority and the certificates that are missing, renews those that have two thirds of their life behind them, and replaces
the authority when it has. Run it again and again, once an hour: the chart makes a CronJob of it (certificates.self.enabled). A run that
finds nothing to do writes nothing. Runs at the same time do no harm: one of them ends with an error.

Each Secret has tls.crt, tls.key and ca.crt. With --dir they are directories with these files. Name all of them in every run.

An authority is replaced with overlap. First the new one is added to ca.crt everywhere. After --overlap all certificates are issued by the
new one. After --overlap again the old one leaves ca.crt. In the first of these times bring the new ca.crt into the entries of every
cluster: the command prints until when. With --entries it waits for the entries of the cluster of the Secrets. The key "rotate" in the Secret of
the authority, with any content, begins that now.

Certificates of another authority are taken over in the same way: that authority stays in ca.crt, until it is removed from the key
"extra.crt" in the Secret of the authority.

The command ends with an error if a certificate has five sixths of its life behind it and could not be renewed.`,
		Example: `  portcullis certs keep --namespace portcullis-system --client portcullis-imagepolicy-tls=spiffe://mesh/imagepolicy \
    --server portcullis-tls=portcullis.portcullis-system.svc,portcullis-hosts.portcullis-system.svc,10.0.0.7
  portcullis certs keep --dir /etc/portcullis/certs --server dispatcher=mesh.example.com --client apiserver=kube-apiserver`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.servers, "server", nil, "Secret of a server, and its DNS names and addresses; may be given several times")
	f.StringArrayVar(&c.clients, "client", nil, "Secret of a host or another client, and its identity; may be given several times")
	f.StringVar(&c.config.Authority, "authority", DefaultAuthoritySecret, "Secret of the authority")
	f.DurationVar(&c.config.LeafTTL, "ttl", certs.DefaultLeafTTL, "how long a certificate holds")
	f.DurationVar(&c.config.AuthorityTTL, "authority-ttl", certs.DefaultAuthorityTTL, "how long an authority holds")
	f.DurationVar(&c.config.Overlap, "overlap", keep.DefaultOverlap, "least time between two steps of the replacement of an authority, 10m or more")
	f.StringVar(&c.entries, "entries", "", "name of the webhook configurations that call the mesh in the cluster of the Secrets: a new authority "+
		"does not issue before they have it (default: not looked at)")
	f.StringVar(&c.dir, "dir", "", "directory to use in the place of Secrets")
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the Secrets (default: the namespace of the kubeconfig, or of the Pod)")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster of the Secrets (default: as kubectl finds it)")
	f.StringVar(&c.kubeContext, "kube-context", "", "context in it (default: its current one)")
	f.DurationVar(&c.timeout, "timeout", time.Minute, "how long a run may take")
	return cmd
}

func (c *keepCommand) run(ctx context.Context, out io.Writer) (err error) {
	if err := c.leaves(); err != nil {
		return err
	}
	store, done, err := c.store()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	result, err := keep.Run(ctx, store, c.config)
	return errors.Join(err, c.show(out, result))
}

func (c *keepCommand) show(out io.Writer, result keep.Result) error {
	lines := result.Writes
	if len(lines) == 0 {
		lines = []string{"nothing to do"}
	}
	if result.Waiting != "" {
		lines = append(lines, c.config.Authority+": "+result.Waiting)
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// leaves reads --server and --client.
func (c *keepCommand) leaves() error {
	for _, text := range c.servers {
		secret, names, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--server %q: want SECRET=NAME,..., as in portcullis-tls=mesh.example.com,10.0.0.7", text)
		}
		leaf := keep.Leaf{Secret: secret}
		for name := range strings.SplitSeq(names, ",") {
			if ip := net.ParseIP(name); ip != nil {
				leaf.IPs = append(leaf.IPs, ip)
			} else if name != "" {
				leaf.DNSNames = append(leaf.DNSNames, name)
			}
		}
		c.config.Leaves = append(c.config.Leaves, leaf)
	}
	for _, text := range c.clients {
		secret, identity, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--client %q: want SECRET=IDENTITY, as in portcullis-imagepolicy-tls=spiffe://mesh/imagepolicy", text)
		}
		c.config.Leaves = append(c.config.Leaves, keep.Leaf{Secret: secret, Identity: identity})
	}
	for _, name := range c.names() { // of a Secret, and of a directory that is below --dir
		if errs := validation.NameIsDNSSubdomain(name, false); len(errs) > 0 {
			return fmt.Errorf("%q is no name of a Secret: %s", name, errs[0])
		}
	}
	return nil
}

func (c *keepCommand) names() []string {
	names := []string{c.config.Authority}
	for _, leaf := range c.config.Leaves {
		names = append(names, leaf.Secret)
	}
	return names
}

// store opens the Secrets. The caller calls done at the end.
func (c *keepCommand) store() (store keep.Store, done func() error, err error) {
	if c.dir != "" {
		if c.namespace != "" || c.kubeconfig != "" || c.kubeContext != "" || c.entries != "" {
			return nil, nil, errors.New("--dir takes the place of Secrets: leave out --namespace, --kubeconfig, --kube-context and --entries")
		}
		dir, err := keep.OpenDir(c.dir)
		if err != nil {
			return nil, nil, fmt.Errorf("--dir: %w", err)
		}
		return dir, dir.Close, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.kubeContext})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	answers.Transport{WholeErrors: true}.Bound(config)
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	entries, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	namespace = cmp.Or(c.namespace, namespace)
	if c.entries != "" {
		c.config.Entries = func(ctx context.Context) (map[string][]byte, error) {
			return caBundles(ctx, entries, c.entries)
		}
	}
	return &secrets{client: client.Secrets(namespace), namespace: namespace}, func() error { return nil }, nil
}
