package config

import (
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// WithoutServerFields makes the decoder leave out the fields that an API server sets, such as status and metadata.resourceVersion, so that it reads
// documents of a cluster as people would write them: Object.Manifest has no such field either. It returns the decoder, and is called before that
// reads anything.
func (d *Decoder) WithoutServerFields() *Decoder {
	d.fromServer = true
	return d
}

// dropServerFields leaves out of the document the fields that an API server or kubectl has set. Items of a list get their version and kind.
func (d *document) dropServerFields(h head) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &content); err != nil {
		return // reading it will tell
	}
	content["apiVersion"], content["kind"] = h.APIVersion, h.Kind
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		for _, name := range []string{
			"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields",
			"ownerReferences", "finalizers",
		} {
			delete(metadata, name)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	if dropped, err := json.Marshal(content); err == nil {
		d.json = dropped
	}
}
