package certs

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistration "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// caBundles returns the caBundle of each webhook of the validating and the mutating configuration of that name. A missing
// configuration has none.
func caBundles(ctx context.Context, client admissionregistration.AdmissionregistrationV1Interface, name string) (map[string][]byte, error) {
	bundles := map[string][]byte{}
	validating, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		for _, webhook := range validating.Webhooks {
			bundles["validatingwebhookconfiguration/"+name+" "+webhook.Name] = webhook.ClientConfig.CABundle
		}
	}
	mutating, err := client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		for _, webhook := range mutating.Webhooks {
			bundles["mutatingwebhookconfiguration/"+name+" "+webhook.Name] = webhook.ClientConfig.CABundle
		}
	}
	return bundles, nil
}
