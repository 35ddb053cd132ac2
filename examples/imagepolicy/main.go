// Imagepolicy is a host with one validating hook: images are named by digest. It is a beginning for hosts of your own, and what the
// chart runs as exampleHost, so that there is something to deny the first Pod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
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

// run serves the hook until ctx ends.
func run(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("imagepolicy", flag.ContinueOnError)
	flags.SetOutput(logs)
	dispatchers := flags.String("dispatchers", "", "host:port of the dispatchers, separated by commas; each address of a name is one")
	cert := flags.String("cert", "tls.crt", "PEM file of our certificate, whose identity the HookRoute names")
	key := flags.String("key", "tls.key", "PEM file of its key")
	ca := flags.String("ca", "ca.crt", "PEM file of the authorities of the dispatchers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dispatchers == "" {
		return errors.New("--dispatchers is missing: say where the mesh listens for hosts, for example mesh.example.com:8444")
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name:        "imagepolicy",
		Dispatchers: strings.Split(*dispatchers, ","),
		TLS:         hostsdk.TLSFiles(*cert, *key, *ca),
		Logger:      slog.New(slog.NewJSONHandler(logs, nil)),
	})
	if err != nil {
		return err
	}
	host.Validate("imagepolicy.example.com", kube.Validate(byDigest))
	return host.Run(ctx)
}

// byDigest denies a Pod with an image that is not named by digest.
func byDigest(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil { // DELETE
		return hostsdk.Allow(), nil
	}
	for field, image := range images(&pod.Spec) {
		if !strings.Contains(image, "@sha256:") {
			return hostsdk.Deny("images are named by digest here: "+image).WithCause(field, "has no digest"), nil
		}
	}
	return hostsdk.Allow(), nil
}

// images are those of all containers of a Pod, each after the path of its field.
func images(spec *corev1.PodSpec) iter.Seq2[string, string] {
	return func(yield func(field, image string) bool) {
		for i := range spec.InitContainers {
			if !yield(fmt.Sprintf("spec.initContainers[%d].image", i), spec.InitContainers[i].Image) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(fmt.Sprintf("spec.containers[%d].image", i), spec.Containers[i].Image) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(fmt.Sprintf("spec.ephemeralContainers[%d].image", i), spec.EphemeralContainers[i].Image) {
				return
			}
		}
	}
}
