package registrar

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const (
	// trialLabel selects the requests of a trial.
	trialLabel = "portcullis.dev/trial"
	// trialWebhook calls the mesh. witnessWebhook calls a Service that does not exist.
	trialWebhook   = "trial.portcullis.dev"
	witnessWebhook = "witness.portcullis.dev"
	// trialAttempts is how often the API server is asked to call the mesh, once in a trialPause.
	trialAttempts = 5
	trialPause    = time.Second
	// trialCleanup bounds the removal of the trial, also after its context has ended.
	trialCleanup = 10 * time.Second
	// trialSeconds is the timeoutSeconds of a trial.
	trialSeconds = 10
)

// ErrUnreached is the error of a trial whose request did not come through to the mesh, or was not accepted there.
var ErrUnreached = errors.New("the API server has not reached the mesh")

// Try has the API server of a cluster call the mesh for one dry-run request, before any entry can refuse a write. It writes a
// ValidatingWebhookConfiguration that selects that request alone, by a random label, and removes it. A second webhook in it fails
// in any case: its failure, before the request and after it, shows that the API server uses the configuration, so that a request which passes
// has been judged.
//
// The answer is the mesh's refusal of the request, empty if the mesh allowed it: either shows that the mesh is reached, trusted by the
// API server, and knows it as the cluster. An error wraps ErrUnreached, with the API server's reason. One API server answers for
// all of the cluster.
func (r *Registrar) Try(ctx context.Context, cluster string, o registration.Options) (answer string, err error) {
	token := make([]byte, 8)
	_, _ = rand.Read(token) // never fails
	t := &trial{Registrar: r, token: hex.EncodeToString(token)}
	want, err := t.configuration(cluster, o)
	if err != nil {
		return "", err
	}
	if _, err := r.validating.apply(ctx, want, false); err != nil {
		return "", fmt.Errorf("writing a trial: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialCleanup)
		defer cancel()
		_, removal := r.validating.remove(ctx, cluster, want.Name, false)
		err = errors.Join(err, removal)
	}()
	if err := t.awaitWitness(ctx); err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		if answer, err = t.ask(ctx); err == nil || attempt == trialAttempts || !clock.Sleep(ctx, trialPause) {
			return answer, err
		}
	}
}

// trial is one trial.
type trial struct {
	*Registrar
	token string // in the labels of its requests
}

func trialName(name string) string { return name + "-trial" }

func (t *trial) configuration(cluster string, o registration.Options) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	address, err := registration.TrialAddress(cluster, o)
	if err != nil {
		return nil, err
	}
	namespace, absent := metav1.NamespaceDefault, "portcullis-"+t.token
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: registration.Meta(trialName(o.Name), cluster),
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			t.webhook(trialWebhook, address),
			t.webhook(witnessWebhook, admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: absent},
			}),
		},
	}, nil
}

// webhook is called for the Leases with the label of the trial, and with its own name.
func (t *trial) webhook(name string, to admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.ValidatingWebhook {
	fail, none, seconds := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(trialSeconds)
	return admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: to, FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds,
		AdmissionReviewVersions: []string{"v1"},
		ObjectSelector:          &metav1.LabelSelector{MatchLabels: t.labels(name)},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{coordinationv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
		}},
	}
}

func (t *trial) labels(webhook string) map[string]string {
	return map[string]string{trialLabel: t.token + "." + strings.Split(webhook, ".")[0]}
}

// awaitWitness returns when the API server calls the webhooks of the trial.
func (t *trial) awaitWitness(ctx context.Context) error {
	for {
		err := t.request(ctx, witnessWebhook)
		if isFailureOf(err, witnessWebhook) {
			return nil
		}
		if !clock.Sleep(ctx, gonePoll) {
			return fmt.Errorf("%w: it does not call webhooks that are new: %w", ErrUnreached, errors.Join(ctx.Err(), err))
		}
	}
}

// ask has the API server call the mesh.
func (t *trial) ask(ctx context.Context) (answer string, err error) {
	err = t.request(ctx, trialWebhook)
	switch {
	case err == nil:
		return "", t.confirm(ctx)
	case strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied the request", trialWebhook)):
		return err.Error(), nil
	case isFailureOf(err, trialWebhook):
		return "", fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	return "", fmt.Errorf("%w: something else refuses the dry-run creation of a Lease in the namespace default: %w", ErrUnreached, err)
}

// confirm returns an error unless the API server still calls the webhooks of the trial. Another join of the cluster may have removed them
// before the mesh was called, and a request that no webhook sees passes too.
func (t *trial) confirm(ctx context.Context) error {
	err := t.request(ctx, witnessWebhook)
	switch {
	case isFailureOf(err, witnessWebhook):
		return nil
	case err == nil:
		return fmt.Errorf("%w: it no longer calls the webhooks of the trial: wait for other joins of the cluster", ErrUnreached)
	}
	return fmt.Errorf("%w: it is not known whether it still calls the webhooks of the trial: %w", ErrUnreached, err)
}

// isFailureOf reports whether an API server could not call a webhook.
func isFailureOf(err error, webhook string) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("failed calling webhook %q", webhook))
}

// request creates, in a dry run, a Lease that the webhook selects.
func (t *trial) request(ctx context.Context, webhook string) error {
	_, err := t.client.CoordinationV1().Leases(metav1.NamespaceDefault).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "portcullis-trial-" + t.token, Labels: t.labels(webhook)},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
