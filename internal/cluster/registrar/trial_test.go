package registrar

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

func options() registration.Options {
	return registration.Options{Name: "portcullis", URL: "https://mesh.example.com:8443"}
}

// tried is an API server that learns of new webhooks after some requests, and then answers each request of a trial.
func tried(unaware int, answer func() error) *Registrar {
	client := fake.NewClientset()
	client.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, isCreate := action.(clienttesting.CreateActionImpl)
		lease, isLease := create.Object.(*coordinationv1.Lease)
		if !isCreate || !isLease {
			return false, nil, nil
		}
		if unaware--; unaware >= 0 {
			return true, lease, nil
		}
		if strings.HasSuffix(lease.Labels[trialLabel], ".witness") {
			return true, nil, errors.New(`Internal error occurred: failed calling webhook "witness.portcullis.dev": no such service`)
		}
		return true, lease, answer()
	})
	return newRegistrar(client)
}

func TestATrialIsAnsweredByTheMeshAlone(t *testing.T) {
	const denied = `admission webhook "trial.portcullis.dev" denied the request: hook "h" has no host`
	for name, tc := range map[string]struct {
		answers []error // to requests of the trial, the last one again and again
		answer  string
		want    string // of the error
	}{
		"allowed":                      {answers: []error{nil}},
		"denied by the mesh":           {answers: []error{errors.New(denied)}, answer: denied},
		"reached at the second time":   {answers: []error{errors.New(`failed calling webhook "trial.portcullis.dev": connection refused`), nil}},
		"not reached":                  {answers: []error{errors.New(`failed calling webhook "trial.portcullis.dev": x509: unknown authority`)}, want: "x509"},
		"refused by something else":    {answers: []error{errors.New(`admission webhook "other" denied the request`)}, want: "something else refuses"},
		"failed at another webhook":    {answers: []error{errors.New(`failed calling webhook "other": trial.portcullis.dev`)}, want: "something else refuses"},
		"no right to create the Lease": {answers: []error{errors.New(`leases.coordination.k8s.io is forbidden`)}, want: "is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := func() error {
					err := tc.answers[0]
					if len(tc.answers) > 1 {
						tc.answers = tc.answers[1:]
					}
					return err
				}
				r := tried(3, next)
				answer, err := r.Try(t.Context(), "prod-1", options())
				if answer != tc.answer || (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, ErrUnreached) || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("answer %q, error %v, want %q and %q", answer, err, tc.answer, tc.want)
				}
				if left, err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		})
	}
}

// An API server that admits requests since it does not call new webhooks has proved nothing.
func TestATrialThatIsNotSeenIsNoProof(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*gonePoll)
	defer cancel()
	r := tried(1<<30, func() error { return nil })
	if _, err := r.Try(ctx, "prod-1", options()); !errors.Is(err, ErrUnreached) || !strings.Contains(err.Error(), "it does not call webhooks that are new") {
		t.Errorf("error %v", err)
	}
	if left, err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Another join for the same cluster removes, or replaces, the webhooks of a trial between its witness and its question. The request then
// passes since no webhook is called.
func TestATrialWhoseWebhooksAreGoneIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, requests := fake.NewClientset(), 0 // requests is under the lock of client
		client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if requests++; requests == 1 {
				return true, nil, errors.New(`Internal error occurred: failed calling webhook "witness.portcullis.dev": no such service`)
			}
			return true, &coordinationv1.Lease{}, nil
		})
		_, err := newRegistrar(client).Try(t.Context(), "prod-1", options())
		if !errors.Is(err, ErrUnreached) || !strings.Contains(err.Error(), "it no longer calls the webhooks of the trial") {
			t.Errorf("error %v", err)
		}
	})
}
