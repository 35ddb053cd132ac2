// Bare is a host that allows everything without looking, and not made with the SDK: the cost of a host without one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/test/bench/bare"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// serve serves the hook of examples/imagepolicy until ctx ends.
func serve(ctx context.Context) error {
	dispatcher := flag.String("dispatchers", "", "host:port of the dispatcher")
	cert := flag.String("cert", "tls.crt", "PEM file of our certificate")
	key := flag.String("key", "tls.key", "PEM file of its key")
	ca := flag.String("ca", "ca.crt", "PEM file of the authorities of the dispatcher")
	flag.Parse()
	var files pki.Client
	for name, to := range map[string]*[]byte{*cert: &files.Cert, *key: &files.Key, *ca: &files.Authority} {
		pem, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		*to = pem
	}
	secured, err := files.TLS()
	if err != nil {
		return err
	}
	return bare.Run(ctx, bare.Options{
		Address: *dispatcher, TLS: secured, Instance: "bare", Hooks: []string{"imagepolicy.example.com"},
		Stage: admissionv1.Stage_STAGE_VALIDATE,
	})
}
