package follow

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// FieldManager is the name by which API servers know the writer of the condition.
const FieldManager = "portcullis-follow"

// offPatch is the server-side apply that switches an original off: one condition in each webhook. Lists of webhooks and of
// matchConditions are maps by name, so that nothing else changes. The version makes the patch a conflict once the object has
// changed, and keeps it from creating a deleted object anew.
func offPatch(original *unstructured.Unstructured, webhooks []map[string]any) ([]byte, error) {
	condition := []any{map[string]any{"name": config.FollowedCondition, "expression": config.FollowedExpression}}
	applied := make([]any, len(webhooks))
	for i, webhook := range webhooks {
		applied[i] = map[string]any{"name": webhook["name"], "matchConditions": condition}
	}
	return json.Marshal(map[string]any{
		"apiVersion": original.GetAPIVersion(), "kind": original.GetKind(),
		"metadata": map[string]any{"name": original.GetName(), "uid": original.GetUID(), "resourceVersion": original.GetResourceVersion()},
		"webhooks": applied,
	})
}

// onPatch is the JSON Patch that switches an original on: it removes our condition wherever it is, also where another writer owns it,
// such as a restored backup. The annotation tells each dispatcher that the object is to be written once more (package touch).
func onPatch(original *unstructured.Unstructured, webhooks []map[string]any) ([]byte, error) {
	operations := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": original.GetResourceVersion()}}
	if original.GetAnnotations() == nil {
		operations = append(operations, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{}})
	}
	operations = append(operations, map[string]any{
		"op": "add", "path": "/metadata/annotations/" + strings.ReplaceAll(touch.Annotation, "/", "~1"), "value": touch.Mark(original),
	})
	for i, webhook := range webhooks {
		conditions, _ := webhook["matchConditions"].([]any)
		for j := len(conditions) - 1; j >= 0; j-- { // from the end, so that indices stay
			if isOurs(conditions[j]) {
				operations = append(operations, map[string]any{"op": "remove", "path": fmt.Sprintf("/webhooks/%d/matchConditions/%d", i, j)})
			}
		}
	}
	return json.Marshal(operations)
}
