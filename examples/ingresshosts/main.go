// Ingresshosts is a host with one hook: no two namespaces have an Ingress for the same host name. The rule takes the other objects of the cluster, which a
// policy does not have: the host watches them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/clientcmd"

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

// run serves the hook until ctx ends. It connects to the mesh when it knows the Ingresses of the cluster, and not before.
func run(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("ingresshosts", flag.ContinueOnError)
	flags.SetOutput(logs)
	kubeconfig := flags.String("kubeconfig", "", "file of the cluster whose Ingresses are watched; empty is the cluster of this Pod")
	dispatchers := flags.String("dispatchers", "", "host:port of the dispatchers, separated by commas; each address of a name is one")
	cert := flags.String("cert", "tls.crt", "PEM file of our certificate, whose identity the HookRoute names")
	key := flags.String("key", "tls.key", "PEM file of its key")
	ca := flags.String("ca", "ca.crt", "PEM file of the authorities of the dispatchers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := networkingv1.NewForConfig(config)
	if err != nil {
		return err
	}
	ingresses := watch(client.Ingresses(""))
	go ingresses.run(ctx)
	if !ingresses.known(ctx) {
		return ctx.Err()
	}
	host, err := newHost(ingresses, hostsdk.Options{
		Name:        "ingresshosts",
		Dispatchers: strings.Split(*dispatchers, ","),
		TLS:         hostsdk.TLSFiles(*cert, *key, *ca),
		Logger:      slog.New(slog.NewJSONHandler(logs, nil)),
	})
	if err != nil {
		return err
	}
	return host.Run(ctx)
}
