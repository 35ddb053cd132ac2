package serve

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
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/telemetry"
)

// serveConfig are the flags of serve.
type serveConfig struct {
	id            string
	stores        storeConfig
	ignoreBad     bool
	listen        string
	listenHosts   string
	listenAdmin   string
	tls           tlsFiles
	hostsTLS      tlsFiles
	webhooks      webhookConfig
	readyFile     string
	maxBody       int64
	memory        int64
	clusterMemory int64
	maxHeld       int64
	readyTimeout  time.Duration
	stopDelay     time.Duration
	drainTimeout  time.Duration
	reflection    bool
	logFormat     string
	logLevel      string
}

// ignoreBadUsage describes a flag that serve and dev share.
const ignoreBadUsage = "start although documents of the configuration are bad: their hooks are not called"

func (c *serveConfig) memoryBudget() int64 { return cmp.Or(c.memory, bridge.DefaultMemoryBudget) }

func (c *serveConfig) heldBytes() int64 { return cmp.Or(c.maxHeld, c.memoryBudget()/2) }

// NewCommand returns "serve".
func NewCommand() *cobra.Command {
	var c serveConfig
	cmd := &cobra.Command{
		Use:   "serve --config PATH|--data-dir DIR --tls-cert FILE --tls-key FILE --tls-ca FILE",
		Short: "Run a dispatcher",
		Long: `Serve runs one dispatcher with its three edges:

  --listen         AdmissionReview JSON over HTTPS, for API servers (POST /v1/clusters/{cluster}/validate and /mutate)
  --listen-hosts   gRPC over mutual TLS, for the hosts that serve hooks (and for direct callers of AdmissionService)
  --listen-admin   /healthz, /readyz and /metrics over HTTP

The configuration is read from the files and directories named by --config, from the store in --data-dir or --etcd, which
"portcullis apply" writes, and from the ConfigMaps of --config-namespace, and again whenever they change: webhook
configurations of admissionregistration.k8s.io, and HookRoutes, Clusters and Roles of portcullis.dev/v1. Certificates and
authorities are reloaded when their files change. Traces are exported as the OTEL_* variables say.

A hook is served over streams if its HookRoute says so. Any other is called over HTTPS by its clientConfig, as kube-apiserver
would call it: as whom, says --webhook-kubeconfig; where the services of clusters are that this process is not part of, says
--webhook-service.

SIGTERM stops it without losing a request: it turns unready, waits --stop-delay for the load balancers to notice, ends
connections as they become idle, tells the hosts, and stops when the last review is answered or after --drain-timeout.`,
		Example: `  portcullis serve --config /etc/portcullis/conf.d \
    --tls-cert tls.crt --tls-key tls.key --tls-ca clients-ca.crt
  portcullis serve --settings serve.yaml --webhook-kubeconfig webhooks.kubeconfig \
    --webhook-service prod-1/policy/imagepolicy=imagepolicy.prod-1.example.com:8443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if missing := c.missing(); len(missing) > 0 {
				return fmt.Errorf("serve needs %s; "+
					"`portcullis certs --help` makes certificates, `portcullis dev` needs nothing", strings.Join(missing, ", "))
			}
			if err := c.stores.validate(); err != nil {
				return err
			}
			if err := removeReadyFile(c.readyFile); err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), c.logFormat, c.logLevel)
			if err != nil {
				return err
			}
			ready := readyFile{name: c.readyFile}
			defer ready.remove()
			return serve(cmd.Context(), c, log, ready.write)
		},
	}
	c.bind(cmd.Flags())
	return cli.WithServerSettings(cmd)
}

func (c *serveConfig) missing() []string {
	var out []string
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{c.stores.missing(), c.stores.missing() == ""}, {"--tls-cert", c.tls.cert != ""}, {"--tls-key", c.tls.key != ""}, {"--tls-ca", c.tls.ca != ""},
	} {
		if !f.given {
			out = append(out, f.flag)
		}
	}
	return out
}

// findAll sees that the paths of the configuration are there. One that is not when the process starts is more likely
// mistyped or not mounted than gone for a moment, and nobody would be judged before it comes; one that vanishes later is a
// source that has failed, and the last configuration holds while it may.
func findAll(paths []string) error {
	var errs []error
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("--config: %w: name files and directories that are there", err))
		}
	}
	return errors.Join(errs...)
}

func (c *serveConfig) bind(f *pflag.FlagSet) {
	f.StringVar(&c.id, "id", "", "name of this dispatcher, unique per process start (default: random)")
	c.stores.bind(f)
	f.BoolVar(&c.ignoreBad, "ignore-bad-documents", false, ignoreBadUsage)
	f.StringVar(&c.listen, "listen", ":8443", "address for API servers")
	f.StringVar(&c.listenHosts, "listen-hosts", ":8444", "address for hosts")
	f.StringVar(&c.listenAdmin, "listen-admin", "127.0.0.1:8445", "address for probes and metrics, without TLS")
	f.StringVar(&c.tls.cert, "tls-cert", "", "PEM file of the server certificate")
	f.StringVar(&c.tls.key, "tls-key", "", "PEM file of its key")
	f.StringVar(&c.tls.ca, "tls-ca", "", "PEM file of the authorities of the API servers' client certificates")
	f.StringVar(&c.hostsTLS.cert, "hosts-tls-cert", "", "PEM file of the certificate for hosts (default: --tls-cert)")
	f.StringVar(&c.hostsTLS.key, "hosts-tls-key", "", "PEM file of its key (default: --tls-key)")
	f.StringVar(&c.hostsTLS.ca, "hosts-tls-ca", "", "PEM file of the authorities of hosts (default: --tls-ca)")
	c.webhooks.bind(f)
	f.StringVar(&c.readyFile, "ready-file", "", "write the addresses there, as JSON, while every listener serves; it is removed at the end")
	f.Int64Var(&c.maxBody, "max-body-bytes", bridge.DefaultMaxBodyBytes, "largest review, in bytes")
	f.Int64Var(&c.memory, "memory-budget", bridge.DefaultMemoryBudget,
		"most bytes that reviews hold at a time; give the process three times as much and 256 MiB")
	f.Int64Var(&c.clusterMemory, "cluster-memory-budget", 0,
		"most of them for one cluster (default: as much as it leaves free for the others)")
	f.Int64Var(&c.maxHeld, "max-held-bytes", 0,
		"most bytes of reviews that wait while the configuration is stale; one cluster's as many as it leaves free (default: half of --memory-budget)")
	f.DurationVar(&c.readyTimeout, "ready-timeout", 10*time.Second,
		"how long to stay unready while hooks have no host yet")
	f.DurationVar(&c.stopDelay, "stop-delay", 5*time.Second, "how long to serve on after SIGTERM, unready")
	f.DurationVar(&c.drainTimeout, "drain-timeout", 30*time.Second, "how long reviews in flight may take after that")
	f.BoolVar(&c.reflection, "reflection", false, "let gRPC clients on --listen-hosts ask for the services")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
}
