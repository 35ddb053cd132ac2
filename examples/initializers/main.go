// Initializers is a host with two initializers: one adds a sidecar to each Pod, the other one has the images of Pods pulled at each start.
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

// run serves the initializers until ctx ends.
func run(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("initializers", flag.ContinueOnError)
	flags.SetOutput(logs)
	dispatchers := flags.String("dispatchers", "", "host:port of the dispatchers, separated by commas; each address of a name is one")
	cert := flags.String("cert", "tls.crt", "PEM file of our certificate, whose identity the HookRoute names")
	key := flags.String("key", "tls.key", "PEM file of its key")
	ca := flags.String("ca", "ca.crt", "PEM file of the authorities of the dispatchers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host, err := newHost(hostsdk.Options{
		Name:        "initializers",
		Dispatchers: strings.Split(*dispatchers, ","),
		TLS:         hostsdk.TLSFiles(*cert, *key, *ca),
		Logger:      slog.New(slog.NewJSONHandler(logs, nil)),
	})
	if err != nil {
		return err
	}
	return host.Run(ctx)
}

// newHost has the initializers of mesh.yaml.
func newHost(o hostsdk.Options) (*hostsdk.Host, error) {
	return hostsdk.New(o,
		hostsdk.Initialize("sidecar.example.com", kube.Initialize(addProxy)),
		hostsdk.Initialize("podimage.example.com", kube.Initialize(pullAlways)),
	)
}

const proxyName, proxyImage = "proxy", "registry.example.com/proxy:1"

// addProxy adds the sidecar to a Pod, unless it shares the network of its node, where the sidecar has no place.
func addProxy(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*corev1.Pod, error) {
	if pod.Spec.HostNetwork {
		return pod, nil
	}
	for i, c := range pod.Spec.Containers {
		if c.Name == proxyName {
			denial := hostsdk.Deny("the name " + proxyName + " is the name of the sidecar: rename the container").WithCode(422).WithReason("Invalid")
			return nil, &hostsdk.DeniedError{Response: denial.WithCause(fmt.Sprintf("spec.containers[%d].name", i), "is taken")}
		}
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: proxyName, Image: proxyImage})
	return pod, nil
}

// pullAlways has each image that is not named by digest pulled at each start of its container. Otherwise a node that has the image would
// run it for a user without the right to pull it, or would run an older image of the same tag.
func pullAlways(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*corev1.Pod, error) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if !strings.Contains(containers[i].Image, "@sha256:") {
				containers[i].ImagePullPolicy = corev1.PullAlways
			}
		}
	}
	return pod, nil
}
