package serve

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// The names that the samples use.
const (
	devCluster    = "dev"
	devAPIServer  = "kube-apiserver"
	devHost       = "spiffe://portcullis.dev/sample-host"
	devHostName   = "sample-host"
	devClientName = "client"
	hooksSample   = "config/hooks.yaml"
)

// sampleHostTimeout is how long the sample host may take to be in rotation; an edited configuration may not know it.
const sampleHostTimeout = 5 * time.Second

//go:embed samples
var samples embed.FS

// NewDevCommand returns "dev": a dispatcher with samples and a host, in one process.
func NewDevCommand() *cobra.Command {
	var dataDir, readyFile, listenReviews, listenHosts, listenAdmin, logLevel string
	var ignoreBad, profiles, noSamples bool
	var flags webhooks.Flags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, with samples",
		Long: `Dev runs a dispatcher, generated certificates, a sample configuration and a sample host in one process, and prints how
to send it a review, with the answer. The host is connected as any host is: over gRPC and mutual TLS.

The data directory holds the configuration (edit it: changes are in force within a second), certificates and a sample
review. Without --data-dir it is a temporary directory, removed at the end.

A host of your own dials it with the flags that dev prints: an address, and a certificate that dev has made for it. With --no-samples
there is no other host, and no configuration but the cluster that reviews come from. "portcullis host init" makes such a host.`,
		Example: `  portcullis dev
  portcullis dev --no-samples --data-dir dev --listen-hosts 127.0.0.1:8444
  portcullis dev --data-dir ./portcullis-dev --ready-file ready.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, remove, err := devDir(dataDir)
			if err != nil {
				return err
			}
			defer remove()
			d := dev{dir: dir, noSamples: noSamples, out: cmd.OutOrStdout(), logs: cmd.ErrOrStderr()}
			d.ready.Name = cmp.Or(readyFile, d.path("ready.json"))
			if err := listen.RemoveReadyFile(d.ready.Name); err != nil {
				return err
			}
			defer d.ready.Remove()
			flags.Networks = append(flags.Networks, loopback()...)
			return d.run(cmd.Context(), serveConfig{
				stores:    storeConfig{paths: []string{d.path("config")}, dataDir: d.dir, operator: identity.Grant{Names: []string{devAPIServer}}},
				ignoreBad: ignoreBad, listen: listenReviews, listenHosts: listenHosts, listenAdmin: listenAdmin, profiles: profiles,
				tls:          listen.TLSFiles{Cert: d.path("certs/server.crt"), Key: d.path("certs/server.key"), CA: d.path("certs/ca.crt")},
				webhooks:     flags,
				drainTimeout: 10 * time.Second, readyTimeout: 10 * time.Second, slow: observe.DefaultSlow,
				logFormat: "text", logLevel: logLevel,
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&dataDir, "data-dir", "", "directory for configuration and certificates (default: a temporary one)")
	f.BoolVar(&noSamples, "no-samples", false, "write no sample hooks, and run no sample host; hooks that are in the data directory stay")
	f.BoolVar(&ignoreBad, "ignore-bad-documents", false, ignoreBadUsage)
	f.StringVar(&readyFile, "ready-file", "",
		"write addresses and certificates there, as JSON, while everything serves (default: ready.json in the data directory)")
	f.StringVar(&listenReviews, "listen", "127.0.0.1:0", "address for API servers")
	f.StringVar(&listenHosts, "listen-hosts", "127.0.0.1:0", "address for hosts")
	f.StringVar(&listenAdmin, "listen-admin", "127.0.0.1:0", "address for probes and metrics")
	f.BoolVar(&profiles, "pprof", false, telemetry.ProfilesUsage)
	flags.Bind(f)
	f.StringVar(&logLevel, "log-level", "warn", "debug, info, warn or error")
	return cli.WithServerSettings(cmd)
}

// loopback are the networks of a webhook that runs beside dev.
func loopback() []string { return []string{"127.0.0.0/8", "::1"} }

func devDir(dir string) (string, func(), error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		return abs, func() {}, err
	}
	dir, err := os.MkdirTemp("", "portcullis-dev-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

type dev struct {
	dir       string
	noSamples bool
	out, logs io.Writer
	ready     listen.ReadyFile
	log       *slog.Logger
}

func (d *dev) path(name string) string { return filepath.Join(d.dir, name) }

// run prepares the directory, serves, and runs the sample host beside, if there is one.
func (d *dev) run(ctx context.Context, c serveConfig) error {
	var err error
	if d.log, err = telemetry.NewLogger(d.logs, c.logFormat, c.logLevel); err != nil {
		return err
	}
	d.log = slog.New(&devLog{Handler: d.log.Handler(), out: d.logs, dir: d.dir})
	if err := d.prepare(); err != nil {
		return fmt.Errorf("preparing %s: %w", d.dir, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	serving := make(chan listen.ReadyInfo, 1)
	g.Go(func() error {
		defer cancel()
		return serve(gctx, c, d.log, func(info listen.ReadyInfo) error {
			serving <- info
			return nil
		})
	})
	g.Go(func() error {
		select {
		case info := <-serving:
			info.CA, info.ClientCert, info.ClientKey = d.clientFiles()
			if d.noSamples {
				return d.announce(info)
			}
			return d.host(gctx, info)
		case <-gctx.Done():
			return nil
		}
	})
	return g.Wait()
}

func (d *dev) clientFiles() (ca, cert, key string) {
	return d.path("certs/ca.crt"), d.path("certs/client.crt"), d.path("certs/client.key")
}

func (d *dev) hostFiles() (cert, key string) {
	return d.path("certs/host.crt"), d.path("certs/host.key")
}

// prepare writes the samples and makes the certificates, unless they are there.
func (d *dev) prepare() error {
	if err := d.writeSamples(); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path("certs"), 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(d.path("certs/ca.crt")); err == nil {
		return nil
	}
	ca, err := certs.NewAuthority("portcullis dev", 0)
	if err != nil {
		return err
	}
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for name, spec := range map[string]certs.Spec{
		"server":      {DNSNames: []string{"localhost"}, IPs: local, Server: true},
		devClientName: {Identity: devAPIServer, Client: true},
		"host":        {Identity: devHost, Client: true},
	} {
		pair, err := ca.Issue(spec)
		if err != nil {
			return err
		}
		if err := pair.Write(d.path("certs/"+name+".crt"), d.path("certs/"+name+".key")); err != nil {
			return err
		}
	}
	return ca.CA().Write(d.path("certs/ca.crt"), d.path("certs/ca.key"))
}

func (d *dev) writeSamples() error {
	for _, name := range []string{hooksSample, "config/mesh.yaml", "pod.json"} {
		if name == hooksSample && d.noSamples {
			continue
		}
		file := d.path(name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		data, err := samples.ReadFile("samples/" + name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// host runs the sample host until ctx ends, and announces the mesh once its hooks are in rotation.
func (d *dev) host(ctx context.Context, info listen.ReadyInfo) error {
	tracing := telemetry.New(ctx, telemetry.Options{ServiceName: devHostName, ServiceVersion: cli.Version(), Logger: d.log})
	defer tracing.Close(ctx)
	cert, key := d.hostFiles()
	h, err := hostsdk.New(hostsdk.Options{
		Name:           devHostName,
		Dispatchers:    []string{info.Hosts},
		TLS:            hostsdk.TLSFiles(cert, key, d.path("certs/ca.crt")),
		TracerProvider: tracing.TracerProvider,
		Logger:         d.log,
	}, sampleHooks()...)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.Run(gctx) })
	g.Go(func() error {
		select {
		case <-h.Ready():
		case <-time.After(sampleHostTimeout):
			fmt.Fprintf(d.logs, "the sample host's hooks are not all in rotation: see %s\n", d.path("config"))
		case <-gctx.Done():
			return nil
		}
		return d.announce(info)
	})
	return g.Wait()
}

// announce writes the ready file and prints the guide.
func (d *dev) announce(info listen.ReadyInfo) error {
	if err := d.ready.Write(info); err != nil {
		return err
	}
	d.explain(info)
	return nil
}

func (d *dev) explain(info listen.ReadyInfo) {
	cert, key := d.hostFiles()
	fmt.Fprintf(d.out, `Portcullis is serving. Cluster %[1]q is called by identity %[2]q.

  configuration  %[3]s   (edit it; changes are in force within a second)
  metrics        %[4]s/metrics
  in a browser   %[5]s console --ready-file %[6]s
  hosts dial     %[7]s, as %[8]q: the identity in the certificate that is made for them

A host of your own (%[5]s host init --help) starts with these flags. Its hooks and a HookRoute belong into the configuration:

  --dispatchers %[7]s --cert %[9]s --key %[10]s --ca %[11]s

`, devCluster, devAPIServer, d.path("config"), info.Admin, os.Args[0], d.ready.Name, info.Hosts, devHost, cert, key, info.CA)
	if d.noSamples {
		fmt.Fprintf(d.out, "Send a review of a Pod to the validating hooks, and to the mutating ones:\n\n  %s\n  %s\n\n",
			d.review("validate --explain"), d.review("mutate"))
	} else {
		d.explainSamples(info)
	}
	fmt.Fprintln(d.out, "Ctrl-C stops it.")
}

func (d *dev) explainSamples(info listen.ReadyInfo) {
	fmt.Fprintf(d.out, `A Pod with an image that is not pinned. Hook "pinned-images.portcullis.dev" denies it, with code 403; why other hooks were
not called is printed too:

  %[1]s

The same Pod, mutated by two hooks in order: the answer carries one patch that adds two labels, the second of which is made
from the first:

  %[2]s

As an API server sends it, as JSON over HTTPS:

  curl -sS -w '\n' --cacert %[3]s --cert %[4]s --key %[5]s \
    -H 'Content-Type: application/json' --data-binary @%[6]s \
    %[7]s/v1/clusters/%[8]s/validate

`, d.review("validate --explain"), d.review("mutate"), info.CA, info.ClientCert, info.ClientKey, d.path("pod.json"), info.Bridge, devCluster)
}

// review is the command that sends the sample review to a stage.
func (d *dev) review(stage string) string {
	return strings.Join([]string{os.Args[0], "review -f", d.path("pod.json"), "--stage", stage, "--ready-file", d.ready.Name}, " ")
}
