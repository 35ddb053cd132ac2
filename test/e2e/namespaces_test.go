package e2e

import (
	"context"
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

func TestANamespaceLabelSwitchesAHookOnAndOff(t *testing.T) {
	const hook, label = "strict.example.com", "e2e.portcullis.dev/policy"
	strict := onPods(hook)
	strict.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "strict"}}
	r := newRoad(t, kube.Validating("strict", strict))
	r.host(t, hostsdk.Validate(hook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("this namespace is strict"), nil
	}))
	r.validate(t)

	if err := r.createDry(t.Context()); err != nil {
		t.Fatalf("without the label: %v", err)
	}
	r.label(t, label, "strict")
	eventually(t, "the label switches the hook on", func() error {
		if err := r.createDry(t.Context()); statusCode(err) != http.StatusForbidden {
			return errors.Join(errors.New("want the hook's denial"), err)
		}
		return nil
	})
	r.label(t, label, "lax")
	eventually(t, "another value switches the hook off", func() error { return r.createDry(t.Context()) })

	// A namespace that the mesh has not heard of is asked for: from its first
	// Pod on the labels count.
	r.namespace = r.newNamespace(t, map[string]string{label: "strict"})
	wantError(t, r.createDry(t.Context()), http.StatusForbidden, hook, "this namespace is strict")
}

func (r *road) label(t *testing.T, key, value string) {
	t.Helper()
	if err := cluster.SetNamespaceLabel(t.Context(), r.namespace, key, value); err != nil {
		t.Fatal(err)
	}
}
