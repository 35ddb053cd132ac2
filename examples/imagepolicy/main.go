// Imagepolicy is a host with two hooks: images are named by digest, and a Pod without a team gets its namespace's. It is a beginning for
// hosts of your own, and the exampleHost of the chart, which denies the first Pod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/portcullis-mesh/portcullis/hostsdk"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// run serves the hooks until ctx ends.
func run(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("imagepolicy", flag.ContinueOnError)
	flags.SetOutput(logs)
	dispatchers := flags.String("dispatchers", "", "host:port of the dispatchers, separated by commas; each address of a name is one")
	cert := flags.String("cert", "tls.crt", "PEM file of our certificate, whose identity the HookRoute names")
	key := flags.String("key", "tls.key", "PEM file of its key")
	ca := flags.String("ca", "ca.crt", "PEM file of the authorities of the dispatchers")
	readyPort := flags.Uint("ready-port", 0, "port that accepts connections once every hook is in rotation; 0 for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dispatchers == "" {
		return errors.New("--dispatchers is missing: say where the mesh listens for hosts, for example mesh.example.com:8444")
	}
	host, err := newHost(hostsdk.Options{
		Dispatchers: strings.Split(*dispatchers, ","),
		TLS:         hostsdk.TLSFiles(*cert, *key, *ca),
		Logger:      slog.New(slog.NewJSONHandler(logs, nil)),
	})
	if err != nil {
		return err
	}
	if *readyPort == 0 {
		return host.Run(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	probes := make(chan error, 1)
	go func() { // Waited for below.
		defer stop() // A port that cannot be listened on ends the host.
		probes <- acceptProbes(ctx, host, *readyPort)
	}()
	err = host.Run(ctx)
	stop()
	return errors.Join(err, <-probes)
}

// acceptProbes accepts connections from the time when every hook is in rotation until ctx ends. A readiness probe with tcpSocket opens one.
func acceptProbes(ctx context.Context, host *hostsdk.Host, port uint) error {
	select {
	case <-host.Ready():
	case <-ctx.Done():
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() }) // accepts no longer
	defer stop()
	for {
		probe, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_ = probe.Close() // the probe has its answer
	}
}
