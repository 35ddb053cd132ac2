// Command checks runs the four checks of test/e2e/peers on Deployments: as a webhook with -webhook, else as a host.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"

	"github.com/portcullis-mesh/portcullis/test/e2e/peers/checks"
)

// headerTimeout bounds the reading of a request's headers.
const headerTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("checks", flag.ContinueOnError)
	webhook := f.String("webhook", "", "host:port where a webhook listens; without it, a host dials")
	cert := f.String("cert", "", "certificate")
	key := f.String("key", "", "its key")
	ca := f.String("ca", "", "authority of the dispatchers")
	name := f.String("name", "checks", "name of the host")
	hook := f.String("hook", "", "name of the hook")
	dispatcher := f.String("dispatcher", "", "host:port of the dispatcher")
	addresses := f.String("addresses", "", "file of the IP addresses, one per line, of the dispatcher's name")
	readyFile := f.String("ready-file", "", "made once the hook is in rotation")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *webhook != "" {
		server := &http.Server{Addr: *webhook, Handler: http.HandlerFunc(review), ReadHeaderTimeout: headerTimeout}
		return server.ListenAndServeTLS(*cert, *key)
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name: *name, Dispatchers: []string{*dispatcher}, TLS: hostsdk.TLSFiles(*cert, *key, *ca), Resolver: addressFile(*addresses),
	}, hostsdk.Validate(*hook, validate))
	if err != nil {
		return err
	}
	go func() {
		<-host.Ready()
		_ = os.WriteFile(*readyFile, nil, 0o600) // who waits for it gives up in time
	}()
	return host.Run(ctx)
}

// validate is the handler of the host.
func validate(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	deployment, err := kube.Object[appsv1.Deployment](r)
	if err != nil {
		return nil, err
	}
	if deployment == nil {
		return nil, errors.New("the request has no object")
	}
	if err := checks.Deployment(deployment); err != nil {
		return hostsdk.Deny(err.Error()), nil
	}
	return hostsdk.Allow(), nil
}

// review is the handler of the webhook.
func review(w http.ResponseWriter, r *http.Request) {
	var asked admissionv1.AdmissionReview
	var deployment appsv1.Deployment
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err == nil && asked.Request == nil {
		err = errors.New("a review without a request")
	}
	if err == nil {
		err = json.Unmarshal(asked.Request.Object.Raw, &deployment)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := admissionv1.AdmissionReview{TypeMeta: asked.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: asked.Request.UID, Allowed: true}}
	if err := checks.Deployment(&deployment); err != nil {
		answer.Response.Allowed, answer.Response.Result = false, &metav1.Status{Message: err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // whoever asked is gone
}

// addressFile is a file of IP addresses, all of one name.
type addressFile string

// LookupHost implements hostsdk.Resolver.
func (f addressFile) LookupHost(context.Context, string) ([]string, error) {
	data, err := os.ReadFile(string(f))
	return strings.Fields(string(data)), err
}
