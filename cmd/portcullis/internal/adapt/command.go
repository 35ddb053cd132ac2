// Package adapt is "portcullis adapt": it wires a host that runs beside an ordinary webhook and forwards calls to it, and runs it.
package adapt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// tlsFiles are PEM files of one side of a connection.
type tlsFiles struct{ cert, key, ca string }

// config are the flags of "adapt".
type config struct {
	name        string
	dispatchers []string
	tls         tlsFiles
	serverName  string
	instance    string
	zone        string
	clusters    []string

	validate    []string
	mutate      []string
	versions    []string
	speculate   []string
	sideEffects []string

	webhookTLS        tlsFiles
	webhookServerName string
	insecure          bool
	readyURL          string

	slots          int
	maxOutstanding int
	slow           time.Duration
	maxReview      int
	drainTimeout   time.Duration

	listenAdmin string
	profiles    bool
	logFormat   string
	logLevel    string
}

// NewCommand returns "adapt".
func NewCommand() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "adapt --name NAME --dispatcher HOST:PORT --cert FILE --key FILE --ca FILE --validate HOOK=URL --mutate HOOK=URL",
		Short: "Serve an ordinary webhook over streams, beside it",
		Long: `Adapt is a host that runs beside an admission webhook in any language, and forwards calls to it. It dials the dispatchers, so
that the webhook needs no certificate, Service or port of its own, and no change. A HOOK is named as in its webhook configuration; its
HookRoute has "stream: {}" and the identity of --cert. The URL is one of

  http://127.0.0.1:8080/validate       without TLS, on this machine alone: reviews have Secrets in them
  unix:///run/webhook.sock:/validate   HTTP over a unix socket; the path of the URL follows the second colon
  https://127.0.0.1:9443/validate      with TLS: --webhook-ca, and --webhook-server-name as the certificate has it

The webhook is sent an AdmissionReview with a uid of its own, the object byte for byte, ?timeout= and the trace, as the mesh sends to a
webhook that it calls itself, and its answer means the same: a denial is a denial, and an answer that is malformed is a failure. When the
mesh gives a call up, the request ends. A call that finds no connection goes to another replica.

Adapt begins with --slots calls at a time. It takes fewer when the webhook answers 429 or 503, refuses connections, misses deadlines or is
slow, more again when calls go well, and never more than --max-outstanding. While the webhook is gone or not ready it takes none. One adapt
stands before one webhook process: hooks at several addresses share the slots, and calls are taken while one of them answers.

--review-version says which AdmissionReview version the webhook is sent, as the mesh does not tell: the first of its
admissionReviewVersions, v1 by default. --side-effects says likewise that the webhook may be sent a review twice: once more after it has
closed the connection that was kept for it.

SIGTERM stops it without losing a call: it announces that it leaves and finishes the calls in flight within --drain-timeout. The webhook has
to outlive it.`,
		Example: `  portcullis adapt --name imagepolicy --dispatcher portcullis-hosts.portcullis-system.svc:8444 \
    --cert tls.crt --key tls.key --ca mesh-ca.crt --validate imagepolicy.example.com=http://127.0.0.1:8080/validate
  portcullis adapt --settings adapt.yaml --ready-url http://127.0.0.1:8081/readyz --listen-admin :8446 \
    --mutate defaults.example.com=unix:///run/webhook.sock:/mutate --review-version defaults.example.com=v1beta1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := c.plan()
			if err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), c.logFormat, c.logLevel)
			if err != nil {
				return err
			}
			return run(cmd.Context(), &c, plan, log)
		},
	}
	c.bind(cmd.Flags())
	return cli.WithServerSettings(cmd)
}

func (c *config) bind(f *pflag.FlagSet) {
	f.StringVar(&c.name, "name", "", "name of the host, the same for all its replicas")
	f.StringSliceVar(&c.dispatchers, "dispatcher", nil,
		"host:port of a dispatcher's listener for hosts; a name stands for all of its addresses; may be given several times")
	f.StringVar(&c.tls.cert, "cert", "", "PEM file of our certificate, whose identity the HookRoute names")
	f.StringVar(&c.tls.key, "key", "", "PEM file of its key")
	f.StringVar(&c.tls.ca, "ca", "", "PEM file of the authorities of the dispatchers")
	f.StringVar(&c.serverName, "server-name", "", "name in the dispatchers' certificates (default: the host of --dispatcher)")
	f.StringVar(&c.instance, "instance", "", "name of this process among its replicas (default: the host name and a random suffix)")
	f.StringVar(&c.zone, "zone", "", "failure domain that the process runs in")
	f.StringSliceVar(&c.clusters, "cluster", nil, "cluster to serve; may be given several times (default: all that are granted)")
	f.StringSliceVar(&c.validate, "validate", nil, "HOOK=URL of a validating hook; may be given several times")
	f.StringSliceVar(&c.mutate, "mutate", nil, "HOOK=URL of a mutating hook; may be given several times")
	f.StringSliceVar(&c.versions, "review-version", nil,
		"AdmissionReview version that the webhook is sent, v1 or v1beta1 (v1alpha1 to validating hooks), or HOOK=VERSION for one hook; "+
			"may be given several times (default: v1)")
	f.StringSliceVar(&c.sideEffects, "side-effects", nil,
		"sideEffects of the webhook, None or NoneOnDryRun, or HOOK=None for one hook: a review that was lost with a kept connection is sent "+
			"once more; may be given several times (default: it may have some)")
	f.StringSliceVar(&c.speculate, "speculate", nil,
		"mutating hook that agrees to calls whose verdicts may be thrown away, as it changes nothing outside; may be given several times")
	f.StringVar(&c.webhookTLS.ca, "webhook-ca", "", "PEM file of the authorities of the webhook's certificate (default: the system's)")
	f.StringVar(&c.webhookServerName, "webhook-server-name", "", "name in the webhook's certificate (default: the host of its URL)")
	f.StringVar(&c.webhookTLS.cert, "webhook-cert", "", "PEM file of the client certificate for a webhook that asks for one")
	f.StringVar(&c.webhookTLS.key, "webhook-key", "", "PEM file of its key")
	f.BoolVar(&c.insecure, "webhook-insecure", false, "do not check the certificate of a webhook on this machine; refused for any other")
	f.StringVar(&c.readyURL, "ready-url", "",
		"URL whose GET says that the webhook is ready, by a status of 200 to 399 (default: it is when it takes connections)")
	f.IntVar(&c.slots, "slots", 0, fmt.Sprintf("calls at a time to begin with (default: %d, or --max-outstanding if that is less)", remote.DefaultSlots))
	f.IntVar(&c.maxOutstanding, "max-outstanding", hostsdk.DefaultMaxOutstanding, "most calls at a time")
	f.DurationVar(&c.slow, "slow", 0, "how long a call takes that shows that the webhook has too many (default: half of the time that it has)")
	f.IntVar(&c.maxReview, "max-review-bytes", hostsdk.DefaultMaxFrameBytes, "largest review, in bytes")
	f.DurationVar(&c.drainTimeout, "drain-timeout", hostsdk.DefaultDrainTimeout, "how long calls in flight may take after SIGTERM")
	f.StringVar(&c.listenAdmin, "listen-admin", "", "address for probes and metrics, without TLS (default: none)")
	f.BoolVar(&c.profiles, "pprof", false, telemetry.ProfilesUsage)
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (c *config) missing() []string {
	var out []string
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--name", c.name != ""}, {"--dispatcher", len(c.dispatchers) > 0},
		{"--cert", c.tls.cert != ""}, {"--key", c.tls.key != ""}, {"--ca", c.tls.ca != ""},
		{"--validate or --mutate", len(c.validate)+len(c.mutate) > 0},
	} {
		if !f.given {
			out = append(out, f.flag)
		}
	}
	return out
}

// plan checks the flags. It reads no files.
func (c *config) plan() (*plan, error) {
	if missing := c.missing(); len(missing) > 0 {
		return nil, fmt.Errorf("adapt needs %s; `portcullis certs issue host` makes a certificate", strings.Join(missing, ", "))
	}
	p := &plan{}
	errs := []error{p.addHooks(c.validate, "--validate", false), p.addHooks(c.mutate, "--mutate", true)}
	errs = append(errs, p.setVersions(c.versions), p.setSideEffects(c.sideEffects), p.setSpeculation(c.speculate), c.checkNumbers())
	if c.readyURL != "" {
		ready, err := remote.ParseAddress(c.readyURL)
		if err != nil {
			errs = append(errs, fmt.Errorf("--ready-url: %w", err))
		}
		p.ready = &ready
	}
	errs = append(errs, c.checkTLS(p))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *config) checkNumbers() error {
	var errs []error
	for _, f := range []struct {
		flag string
		bad  bool
		want string
	}{
		{"--max-outstanding", c.maxOutstanding < 1, "give 1 or more"},
		{"--slots", c.slots < 0 || c.slots > c.maxOutstanding, "give 1 to --max-outstanding"},
		{"--slow", c.slow < 0, "name a duration, as in 2s, or 0 for half of the time of a call"},
		{"--max-review-bytes", c.maxReview < 1, "give 1 or more"},
		{"--drain-timeout", c.drainTimeout <= 0, "name a duration, as in 10s"},
	} {
		if f.bad {
			errs = append(errs, fmt.Errorf("%s: %s", f.flag, f.want))
		}
	}
	return errors.Join(errs...)
}

// checkTLS refuses flags for TLS that would do nothing, and calls whose webhook would not be known by its certificate.
func (c *config) checkTLS(p *plan) error {
	addresses := p.addresses()
	secured := slices.ContainsFunc(addresses, func(a remote.Address) bool { return a.URL.Scheme == "https" })
	given := c.webhookTLS != tlsFiles{} || c.webhookServerName != "" || c.insecure
	var errs []error
	if given && !secured {
		errs = append(errs, errors.New("--webhook-ca, --webhook-server-name, --webhook-cert, --webhook-key and --webhook-insecure are for https, and no URL has it"))
	}
	if (c.webhookTLS.cert == "") != (c.webhookTLS.key == "") {
		errs = append(errs, errors.New("--webhook-cert and --webhook-key: give both, or neither"))
	}
	if !c.insecure {
		return errors.Join(errs...)
	}
	if c.webhookTLS.ca != "" || c.webhookServerName != "" {
		errs = append(errs, errors.New("--webhook-insecure checks nothing: leave it out, or --webhook-ca and --webhook-server-name"))
	}
	for _, a := range addresses {
		if !a.IsLocal() {
			errs = append(errs, fmt.Errorf("--webhook-insecure: %s is not on this machine: give --webhook-ca", a))
		}
	}
	return errors.Join(errs...)
}
