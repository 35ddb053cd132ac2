// Package controllerruntime tests that a webhook of controller-runtime is a
// hook, unchanged. It needs no cluster.
package controllerruntime

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"app"}],"hostNetwork":true}}`

// podValidator is a team's validator for typed objects.
type podValidator struct{}

func (podValidator) ValidateCreate(_ context.Context, p *corev1.Pod) (admission.Warnings, error) {
	if p.Spec.HostNetwork {
		return admission.Warnings{"see the handbook"}, errors.New("hostNetwork is not allowed here")
	}
	return nil, nil
}

func (v podValidator) ValidateUpdate(ctx context.Context, _, p *corev1.Pod) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, p)
}

func (podValidator) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

// podDefaulter is a team's webhook that changes objects.
type podDefaulter struct{}

func (podDefaulter) Default(_ context.Context, p *corev1.Pod) error {
	p.Labels = map[string]string{"team": "unowned"}
	return nil
}

func TestWebhooksOfControllerRuntimeAreHooks(t *testing.T) {
	citest.Gate(t, "links controller-runtime")
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	handler := admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		if r.UID == "" || r.Object.Raw == nil {
			return admission.Errored(http.StatusBadRequest, errors.New("no object"))
		}
		return admission.Allowed("").WithWarnings("seen " + r.Name)
	})
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			o := adapt.Options{ReviewVersions: []string{version}}
			host, err := hostsdk.New(hostsdk.Options{Name: "adapted", Logger: slog.New(slog.DiscardHandler)},
				hostsdk.Validate("pods", adapt.Handler(admission.WithValidator(scheme, podValidator{}), o)),
				hostsdk.Mutate("defaults", adapt.Handler(admission.WithDefaulter(scheme, podDefaulter{}), o)),
				hostsdk.Validate("seen", adapt.Handler(&admission.Webhook{Handler: handler}, o)),
			)
			if err != nil {
				t.Fatal(err)
			}
			d := hosttest.Start(t, host)
			request := hosttest.Create(pod)

			denied := d.Review(t.Context(), "pods", request)
			if denied.Allowed || denied.Code != http.StatusForbidden || denied.Message != "hostNetwork is not allowed here" || len(denied.Warnings) != 1 {
				t.Errorf("verdict %v", denied)
			}
			patched := d.Review(t.Context(), "defaults", request)
			var got corev1.Pod
			if err := json.Unmarshal(patched.Object, &got); err != nil || got.Labels["team"] != "unowned" {
				t.Errorf("the Pod is now %s, %v", patched.Object, err)
			}
			seen := d.Review(t.Context(), "seen", request)
			if !seen.Allowed || len(seen.Warnings) != 1 || seen.Warnings[0] != "seen web" {
				t.Errorf("verdict %v", seen)
			}
		})
	}
}
