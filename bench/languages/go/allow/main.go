// Allow is a host that allows everything without looking, bare or made with the SDK: what the SDK costs, without any policy.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/portcullis-mesh/portcullis/bench/bare"
	"github.com/portcullis-mesh/portcullis/bench/pki"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// hook is that of examples/imagepolicy.
const hook = "imagepolicy.example.com"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// serve serves the hook until ctx ends.
func serve(ctx context.Context) error {
	withSDK := flag.Bool("sdk", false, "make the host with the SDK")
	dispatcher := flag.String("dispatchers", "", "host:port of the dispatcher")
	cert := flag.String("cert", "tls.crt", "PEM file of our certificate")
	key := flag.String("key", "tls.key", "PEM file of its key")
	ca := flag.String("ca", "ca.crt", "PEM file of the authorities of the dispatcher")
	flag.Parse()
	config, err := secured(*cert, *key, *ca)
	if err != nil {
		return err
	}
	if !*withSDK {
		return bare.Run(ctx, bare.Options{
			Address: *dispatcher, TLS: config, Instance: "bare", Hooks: []string{hook}, Stage: admissionv1.Stage_STAGE_VALIDATE,
		})
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name: "allow", Dispatchers: []string{*dispatcher}, TLS: hostsdk.TLSConfig(config), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	host.Validate(hook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil })
	return host.Run(ctx)
}

// secured is how the dispatcher is reached.
func secured(cert, key, ca string) (*tls.Config, error) {
	var files pki.Client
	for name, to := range map[string]*[]byte{cert: &files.Cert, key: &files.Key, ca: &files.Authority} {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		*to = pem
	}
	return files.TLS()
}
