package registrar

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// SwitchedOff names the webhook configurations that the mesh follows (package follow) and has switched off: without the mesh no API
// server calls them. It names none where the caller may not list them.
func (r *Registrar) SwitchedOff(ctx context.Context) (names []string, err error) {
	mutating, err := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unlessForbidden(err)
	}
	for i := range mutating.Items {
		m := &mutating.Items[i]
		if slices.ContainsFunc(m.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return isOff(w.MatchConditions) }) {
			names = append(names, r.mutating.object(m.Name))
		}
	}
	validating, err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, unlessForbidden(err)
	}
	for i := range validating.Items {
		v := &validating.Items[i]
		if slices.ContainsFunc(v.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return isOff(w.MatchConditions) }) {
			names = append(names, r.validating.object(v.Name))
		}
	}
	return names, nil
}

func isOff(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == config.FollowedCondition })
}

func unlessForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
