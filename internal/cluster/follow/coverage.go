package follow

import (
	"encoding/json"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// covers reports whether the cluster calls the mesh for all requests of the hooks of a copy: each of these decides, and one object of
// the cluster's entries, of the kind of the copy, was made from all of them. The API server lists and watches an original and the
// entries of its kind together, so an API server that knows the original to be off knows those entries as well. A copy without webhooks
// is covered; a copy whose hooks are not in force, since they cannot be compiled, is not.
func covers(s *match.Snapshot, cluster string, hooksKey config.Key, empty bool, objects []*observed) bool {
	var hooks []*match.Hook
	for _, h := range s.Hooks() {
		if config.KeyOf(h) != hooksKey {
			continue
		}
		if !h.Decides() || !h.Serves(cluster) {
			return false
		}
		hooks = append(hooks, h)
	}
	if len(hooks) == 0 {
		return empty
	}
	return slices.ContainsFunc(objects, func(o *observed) bool {
		of, ours := registration.MadeFor(o)
		return ours && of == cluster && o.GetKind() == hooksKey.Kind && plans(s, cluster, o.Unstructured, hooks)
	})
}

// isEmpty reports whether an object is in force that has no webhooks.
func isEmpty(objects map[config.Key]config.Object, key config.Key) bool {
	o, ok := objects[key]
	return ok && (o.Validating == nil || len(o.Validating.Webhooks) == 0) && (o.Mutating == nil || len(o.Mutating.Webhooks) == 0)
}

// plans reports whether each webhook of an object was made from all of the hooks as they are now.
func plans(s *match.Snapshot, cluster string, o *unstructured.Unstructured, hooks []*match.Hook) bool {
	webhooks, err := webhooksOf(o)
	if err != nil || len(webhooks) == 0 {
		return false
	}
	for _, webhook := range webhooks {
		entry, ok := registration.EntryOf(clientConfigOf(webhook), cluster)
		if !ok {
			return false
		}
		drift := s.Drift(cluster, entry)
		if slices.ContainsFunc(drift.Unplanned, func(h *match.Hook) bool { return slices.Contains(hooks, h) }) {
			return false
		}
	}
	return true
}

// clientConfigOf is the address of a webhook; empty if it is not one.
func clientConfigOf(webhook map[string]any) *admissionregistrationv1.WebhookClientConfig {
	c := &admissionregistrationv1.WebhookClientConfig{}
	if data, err := json.Marshal(webhook["clientConfig"]); err != nil || json.Unmarshal(data, c) != nil {
		return &admissionregistrationv1.WebhookClientConfig{}
	}
	return c
}

// addressesOf are the addresses of webhooks, which tell of no caBundle.
func addressesOf(webhooks []map[string]any) []*admissionregistrationv1.WebhookClientConfig {
	all := make([]*admissionregistrationv1.WebhookClientConfig, len(webhooks))
	for i, webhook := range webhooks {
		all[i] = clientConfigOf(webhook)
	}
	return all
}
