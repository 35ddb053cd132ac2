package follow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// NamePrefix begins the names of copies.
const NamePrefix = "followed."

// The kinds that are followed.
const (
	validatingKind = "ValidatingWebhookConfiguration"
	mutatingKind   = "MutatingWebhookConfiguration"
)

// Document is an object of the mesh's configuration.
type Document struct {
	// Key names it.
	Key config.Key
	// Manifest is the object as JSON.
	Manifest []byte
}

// pair are the two documents that stand for an original: the copy, and the route that restricts it to the cluster.
type pair struct{ hooks, route Document }

func (p *pair) size() int { return len(p.hooks.Manifest) + len(p.route.Manifest) }

// copyKeys are the keys of the documents that stand for an original of a kind.
func copyKeys(cluster, kind, name string) (hooks, route config.Key) {
	copied := NamePrefix + cluster + "." + name
	return config.Key{Kind: kind, Name: copied}, config.Key{Kind: kinds.HookRouteKind, Name: copied + "." + string(stageOf(kind))}
}

func stageOf(kind string) kinds.Stage {
	if kind == mutatingKind {
		return kinds.StageMutate
	}
	return kinds.StageValidate
}

// copyOf makes the documents that stand for an original. Labels and annotations stay behind: tools such as Argo CD and Helm find
// their objects by them, and would take the copy for one. Webhooks are copied with all fields, also with those that this program does
// not know, so that the mesh refuses them and does not drop them.
func copyOf(cluster string, original *unstructured.Unstructured) (*pair, error) {
	kind, origin := original.GetKind(), cluster+"/"+original.GetName()
	hooksKey, routeKey := copyKeys(cluster, kind, original.GetName())
	if wrong := apivalidation.NameIsDNSSubdomain(routeKey.Name, false); len(wrong) > 0 {
		return nil, fmt.Errorf("the name of its copy, %s, is none that an object may have: %s", routeKey.Name, strings.Join(wrong, "; "))
	}
	webhooks, err := webhooksOf(original)
	if err != nil {
		return nil, err
	}
	meta := func(key config.Key) map[string]any {
		return map[string]any{"name": key.Name, "annotations": map[string]any{config.FollowedAnnotation: origin}}
	}
	hooks, err := json.Marshal(map[string]any{
		"apiVersion": original.GetAPIVersion(), "kind": kind, "metadata": meta(hooksKey), "webhooks": withoutConditions(webhooks),
	})
	if err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	route, err := json.Marshal(map[string]any{
		"apiVersion": kinds.APIVersion, "kind": kinds.HookRouteKind, "metadata": meta(routeKey),
		"spec": map[string]any{"configuration": hooksKey.Name, "stage": stageOf(kind), "clusters": []string{cluster}},
	})
	if err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	return &pair{Document{hooksKey, hooks}, Document{routeKey, route}}, nil
}

// webhooksOf are the webhooks of an original, each an object.
func webhooksOf(original *unstructured.Unstructured) ([]map[string]any, error) {
	list, _, err := unstructured.NestedSlice(original.Object, "webhooks") // a deep copy
	if err != nil {
		return nil, err
	}
	webhooks := make([]map[string]any, len(list))
	for i := range list {
		webhook, ok := list[i].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("webhooks[%d] is a %T", i, list[i])
		}
		webhooks[i] = webhook
	}
	return webhooks, nil
}

// withoutConditions removes our condition from webhooks, which it changes.
func withoutConditions(webhooks []map[string]any) []map[string]any {
	for _, webhook := range webhooks {
		conditions, _ := webhook["matchConditions"].([]any)
		conditions = slices.DeleteFunc(conditions, isOurs)
		if len(conditions) > 0 {
			webhook["matchConditions"] = conditions
		} else {
			delete(webhook, "matchConditions")
		}
	}
	return webhooks
}

// isOurs reports whether a matchCondition was written to switch its webhook off.
func isOurs(condition any) bool {
	c, _ := condition.(map[string]any)
	return c["name"] == config.FollowedCondition && c["expression"] == config.FollowedExpression
}

// conditionsOf is whether an original is off.
func conditionsOf(webhooks []map[string]any) Conditions {
	off := 0
	for _, webhook := range webhooks {
		conditions, _ := webhook["matchConditions"].([]any)
		if slices.ContainsFunc(conditions, isOurs) {
			off++
		}
	}
	switch {
	case off == 0:
		return On
	case off < len(webhooks):
		return PartlyOff
	}
	return Off
}

// same reports whether two manifests have the same content, whatever the order of their fields.
func same(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonical(a, nil), canonical(b, nil))
}

// reshaped reports whether two copies differ in a field that decides which requests their webhooks see, or may do so.
func reshaped(a, b []byte) bool {
	return !bytes.Equal(canonical(a, requestsAlone), canonical(b, requestsAlone))
}

// sameAddresses reports whether the webhooks of two copies are at the same addresses, whatever authorities vouch for them.
func sameAddresses(a, b []byte) bool {
	return bytes.Equal(canonical(a, addressAlone), canonical(b, addressAlone))
}

func addressAlone(webhook map[string]any) {
	address, _ := webhook["clientConfig"].(map[string]any)
	delete(address, "caBundle")
	clear(webhook)
	webhook["clientConfig"] = address
}

func requestsAlone(webhook map[string]any) {
	for _, field := range []string{"clientConfig", "timeoutSeconds", "sideEffects", "admissionReviewVersions"} {
		delete(webhook, field)
	}
}

// canonical is a manifest with its fields in order, after a change of each webhook.
func canonical(manifest []byte, change func(webhook map[string]any)) []byte {
	var content map[string]any
	d := json.NewDecoder(bytes.NewReader(manifest))
	d.UseNumber()
	if d.Decode(&content) != nil {
		return manifest
	}
	webhooks, _ := content["webhooks"].([]any)
	for _, w := range webhooks {
		if webhook, ok := w.(map[string]any); ok && change != nil {
			change(webhook)
		}
	}
	out, err := json.Marshal(content)
	if err != nil {
		return manifest
	}
	return out
}
