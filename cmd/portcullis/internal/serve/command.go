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
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// serveConfig are the flags of serve.
type serveConfig struct {
	id                 string
	stores             storeConfig
	ignoreBad          bool
	listen             string
	listenHosts        string
	listenAdmin        string
	profiles           bool
	alpn               listen.ALPN
	tls                listen.TLSFiles
	hostsTLS           listen.TLSFiles
	capabilities       bool
	webhooks           webhooks.Flags
	initializers       initializerConfig
	record             recordConfig
	readyFile          string
	maxBody            int64
	memory             int64
	clusterMemory      int64
	maxHeld            int64
	readyTimeout       time.Duration
	readyOthers        time.Duration
	advertise          []string
	clusterFreshFor    time.Duration
	trustedKubeconfigs []string
	stopDelay          time.Duration
	drainTimeout       time.Duration
	slow               time.Duration
	reflection         bool
	logFormat          string
	logLevel           string

	capabilityKeys string        // file; empty for none
	keyOverlap     time.Duration // of keeper.Options
	apiServerLag   time.Duration // of keeper.Options and follow.Options
}

// lagFlag is hidden: a lag that is too short has an API server call by entries of before without a remedy.
const lagFlag = "api-server-lag"

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
  --listen-admin   /livez, /readyz and /metrics over HTTP

The configuration is read from the files and directories named by --config, from the store in --data-dir or --etcd, which
"portcullis apply" writes, from the ConfigMaps of --config-namespace, and from the custom resources of
--config-custom-resources, and again whenever they change: webhook configurations and policies of
admissionregistration.k8s.io, and the kinds of portcullis.dev/v1. Objects whose initializers have yet to act are staged in
--data-dir or --etcd. Certificates and authorities are reloaded when their files change. Traces are exported as the OTEL_* variables say.

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
			err := errors.Join(c.stores.validate(), checkAdvertised(c.advertise), c.alpn.Validate(), c.checkClusterFreshFor(), c.checkKeys(), c.checkLag(),
				cli.CheckSlow(c.slow), c.initializers.validate(), c.record.validate())
			if err != nil {
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
			return serve(cmd.Context(), c, log, ready.Write)
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
		{c.stores.missing(), c.stores.missing() == ""}, {"--tls-cert", c.tls.Cert != ""}, {"--tls-key", c.tls.Key != ""}, {"--tls-ca", c.tls.CA != ""},
	} {
		if !f.given {
			out = append(out, f.flag)
		}
	}
	return out
}

func (c *serveConfig) checkClusterFreshFor() error {
	if c.clusterFreshFor < cluster.MinFreshFor || c.clusterFreshFor > cluster.MaxFreshFor {
		return fmt.Errorf("--cluster-fresh-for: %s; give %s to %s", c.clusterFreshFor, cluster.MinFreshFor, cluster.MaxFreshFor)
	}
	return nil
}

// checkKeys refuses keys that would do nothing, and an overlap that is none.
func (c *serveConfig) checkKeys() error {
	switch {
	case c.capabilityKeys != "" && !c.capabilities:
		return errors.New("--capability-key-file needs --allow-capabilities, which accepts reviews without a client certificate")
	case c.keyOverlap < 0:
		return errors.New("--capability-key-overlap is negative: name a duration, as in 2m")
	}
	return nil
}

// checkLag refuses a lag for which others do not wait long enough.
func (c *serveConfig) checkLag() error {
	if c.apiServerLag <= 0 || c.apiServerLag > touch.Delay {
		return fmt.Errorf("--%s: %s; name a time above 0, and at most %s", lagFlag, c.apiServerLag, touch.Delay)
	}
	return nil
}

// findAll checks that the paths of the configuration exist. A path that is missing at the start is more likely mistyped or
// not mounted than gone for a moment, and no request would be judged before it comes. A path that vanishes later is a
// failed source, and the last configuration holds while it may.
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
	c.alpn.Bind(f)
	f.StringVar(&c.listenHosts, "listen-hosts", ":8444", "address for hosts")
	f.StringVar(&c.listenAdmin, "listen-admin", "127.0.0.1:8445", "address for probes and metrics, without TLS")
	f.BoolVar(&c.profiles, "pprof", false, telemetry.ProfilesUsage)
	f.StringVar(&c.tls.Cert, "tls-cert", "", "PEM file of the server certificate")
	f.StringVar(&c.tls.Key, "tls-key", "", "PEM file of its key")
	f.StringVar(&c.tls.CA, "tls-ca", "", "PEM file of the authorities of the API servers' client certificates")
	f.StringVar(&c.hostsTLS.Cert, "hosts-tls-cert", "", "PEM file of the certificate for hosts (default: --tls-cert)")
	f.StringVar(&c.hostsTLS.Key, "hosts-tls-key", "", "PEM file of its key (default: --tls-key)")
	f.StringVar(&c.hostsTLS.CA, "hosts-tls-ca", "", "PEM file of the authorities of hosts (default: --tls-ca)")
	f.BoolVar(&c.capabilities, "allow-capabilities", false,
		"accept reviews without a client certificate on --listen, by a capability in the path (spec.capabilities of a Cluster)")
	f.StringVar(&c.capabilityKeys, "capability-key-file", "",
		"file of the keys by which the mesh makes capabilities itself, one on each line, the same for all dispatchers: the first makes, "+
			"all are accepted (spec.rotateCapability of a Cluster); needs --allow-capabilities")
	f.DurationVar(&c.keyOverlap, "capability-key-overlap", 2*time.Minute,
		"how long a key is known before entries get a capability of it: other dispatchers may see the file later")
	c.webhooks.Bind(f)
	c.initializers.bind(f)
	c.record.bind(f)
	f.StringVar(&c.readyFile, "ready-file", "", "write the addresses there, as JSON, while every listener serves; it is removed at the end")
	f.Int64Var(&c.maxBody, "max-body-bytes", bridge.DefaultMaxBodyBytes, "largest review, in bytes")
	f.Int64Var(&c.memory, "memory-budget", bridge.DefaultMemoryBudget,
		"most bytes that reviews hold at a time; give the process three times as much and 256 MiB")
	f.Int64Var(&c.clusterMemory, "cluster-memory-budget", 0,
		"most of them for one cluster (default: as much as it leaves free for the others)")
	f.Int64Var(&c.maxHeld, "max-held-bytes", 0,
		"most bytes of reviews that wait while the configuration is stale; one cluster's as many as it leaves free (default: half of --memory-budget)")
	f.DurationVar(&c.readyTimeout, "ready-timeout", 10*time.Second,
		"how long to stay unready after the start while hooks have no host yet")
	f.DurationVar(&c.readyOthers, "ready-timeout-served-elsewhere", 2*time.Minute,
		"how long to stay unready after the start while a fail-closed hook has no host here, and another dispatcher of the same store has one")
	f.StringSliceVar(&c.advertise, "advertise-hosts", nil,
		"IP address or DNS name, and perhaps port, at which hosts reach this dispatcher: hosts of other dispatchers of the same store are told")
	f.DurationVar(&c.clusterFreshFor, "cluster-fresh-for", cluster.FreshFor,
		"how long cached data of a cluster counts after its API server was last heard; a shorter time asks more often")
	f.StringArrayVar(&c.trustedKubeconfigs, "trust-kubeconfig", nil,
		"kubeconfig that a Cluster names (spec.kubeconfig) and that may have programs run (exec) and files sent as tokens (tokenFile); may be given several times")
	f.DurationVar(&c.apiServerLag, lagFlag, touch.Delay,
		"how long an API server takes at most to obey a change of its webhook configurations: tests wait for less")
	_ = f.MarkHidden(lagFlag) // it is there
	f.DurationVar(&c.stopDelay, "stop-delay", 5*time.Second, "how long to serve on after SIGTERM, unready")
	f.DurationVar(&c.drainTimeout, "drain-timeout", 30*time.Second, "how long reviews in flight may take after that")
	f.BoolVar(&c.reflection, "reflection", false, "let gRPC clients on --listen-hosts ask for the services")
	f.DurationVar(&c.slow, "slow", observe.DefaultSlow,
		"log a review that takes so long, and note it in the audit log, with where its time went; 0 turns that off")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
}
