package registrar

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

// Check asks the API server for its version, and returns an error unless the caller may write the entries. The error names all rights
// that are missing.
func (r *Registrar) Check(ctx context.Context) (version string, err error) {
	answer, err := r.client.CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("the API server does not answer: %w", err)
	}
	var info apimachineryversion.Info
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", fmt.Errorf("the API server does not tell its version: %w", err)
	}
	var missing []string
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		for _, verb := range []string{"get", "create", "update", "delete"} {
			may, err := r.may(ctx, verb, resource)
			if err != nil {
				return "", fmt.Errorf("asking for the permissions of this user: %w", err)
			}
			if !may {
				missing = append(missing, verb+" "+resource)
			}
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("this user may not %s: ask for these rights in the group admissionregistration.k8s.io, or choose another --kube-context",
			strings.Join(missing, ", "))
	}
	return info.GitVersion, nil
}

func (r *Registrar) may(ctx context.Context, verb, resource string) (bool, error) {
	review, err := r.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
