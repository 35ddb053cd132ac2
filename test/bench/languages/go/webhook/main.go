// Webhook is the policy of examples/imagepolicy as an ordinary validating webhook, with controller-runtime.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
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

// serve serves the webhook until ctx ends.
func serve(ctx context.Context) error {
	port := flag.Int("port", 0, "where to listen on 127.0.0.1")
	cert := flag.String("cert", "server.crt", "PEM file of the certificate")
	key := flag.String("key", "server.key", "PEM file of its key, in the same directory")
	flag.Parse()
	log.SetLogger(logr.Discard())
	server := webhook.NewServer(webhook.Options{
		Host: "127.0.0.1", Port: *port, CertDir: filepath.Dir(*cert), CertName: filepath.Base(*cert), KeyName: filepath.Base(*key),
	})
	server.Register("/validate", &admission.Webhook{Handler: policy{admission.NewDecoder(scheme.Scheme)}})
	return server.Start(ctx)
}

// policy denies a Pod with an image that is not named by digest.
type policy struct{ decoder admission.Decoder }

// Handle implements admission.Handler.
func (p policy) Handle(_ context.Context, request admission.Request) admission.Response {
	if request.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := p.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	for _, image := range images(&pod.Spec) {
		if !strings.Contains(image, "@sha256:") {
			return admission.Denied("images are named by digest here: " + image)
		}
	}
	return admission.Allowed("")
}

// images are the images of all containers of a Pod.
func images(spec *corev1.PodSpec) []string {
	var all []string
	for i := range spec.InitContainers {
		all = append(all, spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		all = append(all, spec.EphemeralContainers[i].Image)
	}
	return all
}
