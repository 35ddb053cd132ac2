// Package lonebridge wires `portcullis bridge`: the JSON edge without a dispatcher, which sends reviews on to dispatchers elsewhere, and their
// questions to the API server of its cluster.
package lonebridge

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/bridge/upstream"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// config are the flags of "bridge".
type config struct {
	cluster      string
	dispatchers  []string
	mesh         listen.TLSFiles
	listen       string
	listenAdmin  string
	profiles     bool
	alpn         listen.ALPN
	tls          listen.TLSFiles
	callers      []string
	capabilities string
	kubeconfig   string
	webhooks     webhooks.Flags
	noCluster    bool
	readyFile    string
	maxBody      int64
	memory       int64
	slow         time.Duration
	stopDelay    time.Duration
	drainTimeout time.Duration
	logFormat    string
	logLevel     string
}

// NewCommand returns "bridge".
func NewCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "bridge --cluster NAME --dispatcher HOST:PORT --mesh-cert FILE --mesh-key FILE --mesh-ca FILE --tls-cert FILE --tls-key FILE",
		Short: "Run a bridge in a cluster, for dispatchers elsewhere",
		Long: `Bridge runs in or beside a cluster. API servers send it their AdmissionReviews as JSON, and it sends them on to the dispatchers of
a mesh as protobuf, over mutual TLS. It spreads reviews over all dispatchers. If one is away, another one gets the review while there
is time. If none is left the answer is 503, so that the failurePolicy of the entry decides.

The dispatchers need no credentials of the cluster and no way to its API server: facts that a review does not carry (labels of namespaces,
resources in several versions, permissions) they ask through the bridge, which dials them. The bridge passes on these
questions and no others, with its own service account. It calls the conversion webhooks of custom resources for them, at the
addresses that the cluster's own CustomResourceDefinitions have. The Cluster document has "bridge: {}" and the identity of the bridge's
certificate:

  apiVersion: portcullis.dev/v1
  kind: Cluster
  metadata: {name: prod-1}
  spec:
    identities: [spiffe://mesh/bridge/prod-1]
    bridge: {}

The API servers are known by a client certificate (--tls-ca and --caller) or, where they cannot present one, by a capability in the
path (--capability-file). "portcullis cluster register --url" takes the address of the bridge.

SIGTERM stops it without losing a review.`,
		Example: `  portcullis bridge --cluster prod-1 --dispatcher mesh.example.com:8444 \
    --mesh-cert bridge.crt --mesh-key bridge.key --mesh-ca mesh-ca.crt \
    --tls-cert tls.crt --tls-key tls.key --capability-file /var/run/secrets/portcullis/capability`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			if err := listen.RemoveReadyFile(c.readyFile); err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), c.logFormat, c.logLevel)
			if err != nil {
				return err
			}
			ready := listen.ReadyFile{Name: c.readyFile}
			defer ready.Remove()
			return run(cmd.Context(), c, log, ready.Write)
		},
	}
	c.bind(cmd.Flags())
	return cli.WithServerSettings(cmd)
}

func (c *config) bind(f *pflag.FlagSet) {
	f.StringVar(&c.cluster, "cluster", "", "name of the cluster, as its Cluster document has it")
	f.StringSliceVar(&c.dispatchers, "dispatcher", nil,
		"host:port of a dispatcher's listener for hosts; a name stands for all of its addresses; may be given several times")
	f.StringVar(&c.mesh.Cert, "mesh-cert", "", "PEM file of our certificate for dispatchers, by whose identity they know the bridge")
	f.StringVar(&c.mesh.Key, "mesh-key", "", "PEM file of its key")
	f.StringVar(&c.mesh.CA, "mesh-ca", "", "PEM file of the authorities of the dispatchers' certificates")
	f.StringVar(&c.listen, "listen", ":8443", "address for API servers")
	c.alpn.Bind(f)
	f.StringVar(&c.listenAdmin, "listen-admin", "127.0.0.1:8445", "address for probes and metrics, without TLS")
	f.BoolVar(&c.profiles, "pprof", false, telemetry.ProfilesUsage)
	f.StringVar(&c.tls.Cert, "tls-cert", "", "PEM file of the server certificate for API servers")
	f.StringVar(&c.tls.Key, "tls-key", "", "PEM file of its key")
	f.StringVar(&c.tls.CA, "tls-ca", "", "PEM file of the authorities of the API servers' client certificates")
	f.StringArrayVar(&c.callers, "caller", nil, "identity of an API server's client certificate; may be given several times")
	f.StringVar(&c.capabilities, "capability-file", "",
		"file with the capabilities that API servers may show in the path, as `portcullis cluster capability new` prints them; read at the start")
	c.webhooks.Bind(f)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the service account of the Pod)")
	f.BoolVar(&c.noCluster, "no-cluster-api", false,
		"do not give dispatchers access to the cluster: its Cluster document states the facts that reviews do not carry")
	f.StringVar(&c.readyFile, "ready-file", "", "write the addresses there, as JSON, while every listener serves; it is removed at the end")
	f.Int64Var(&c.maxBody, "max-body-bytes", bridge.DefaultMaxBodyBytes, "largest review, in bytes")
	f.Int64Var(&c.memory, "memory-budget", 0, "most bytes that reviews hold at a time (default: 256 MiB)")
	f.DurationVar(&c.slow, "slow", observe.DefaultSlow,
		"log a review that takes so long, with the part of that which was at the bridge; 0 turns that off")
	f.DurationVar(&c.stopDelay, "stop-delay", 5*time.Second, "how long to serve on after SIGTERM, unready")
	f.DurationVar(&c.drainTimeout, "drain-timeout", 30*time.Second, "how long reviews in flight may take after that")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (c *config) validate() error {
	var missing []string
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--cluster", c.cluster != ""}, {"--dispatcher", len(c.dispatchers) > 0},
		{"--mesh-cert", c.mesh.Cert != ""}, {"--mesh-key", c.mesh.Key != ""}, {"--mesh-ca", c.mesh.CA != ""},
		{"--tls-cert", c.tls.Cert != ""}, {"--tls-key", c.tls.Key != ""},
		{"--caller with --tls-ca, or --capability-file", c.capabilities != "" || len(c.callers) > 0 && c.tls.CA != ""},
	} {
		if !f.given {
			missing = append(missing, f.flag)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("bridge needs %s; `portcullis certs --help` makes certificates", strings.Join(missing, ", "))
	case len(c.dispatchers) > upstream.MaxTargets:
		return fmt.Errorf("--dispatcher: %d addresses; give at most %d, or one name for several", len(c.dispatchers), upstream.MaxTargets)
	case c.noCluster && c.kubeconfig != "":
		return errors.New("--no-cluster-api and --kubeconfig: give dispatchers access to the cluster, or not")
	}
	return errors.Join(cli.CheckSlow(c.slow), c.alpn.Validate())
}

// document is the cluster as the bridge knows it: its name and its callers.
func (c *config) document() (*kinds.Cluster, error) {
	d := &kinds.Cluster{Metadata: kinds.Metadata{Name: c.cluster}, Spec: kinds.ClusterSpec{Identities: c.callers}}
	if c.capabilities != "" {
		data, err := os.ReadFile(c.capabilities)
		if err != nil {
			return nil, fmt.Errorf("--capability-file: %w", err)
		}
		found, err := identity.FindCapabilities(data)
		if err == nil && len(found) == 0 {
			err = errors.New("has no capability: `portcullis cluster capability new` prints one")
		}
		if err != nil {
			return nil, fmt.Errorf("--capability-file: %s %w", c.capabilities, err)
		}
		for i, shown := range found {
			d.Spec.Capabilities = append(d.Spec.Capabilities, kinds.Capability{Name: fmt.Sprintf("number-%d", i+1), SHA256: fmt.Sprintf("%x", shown.Sum())})
		}
	}
	if errs := d.Validate(); len(errs) > 0 {
		return nil, fmt.Errorf("--cluster, --caller and --capability-file: %w", errs.ToAggregate())
	}
	return d, nil
}

func (c *config) memoryBudget() int64 { return cmp.Or(c.memory, bridge.DefaultMemoryBudget) }
