package custom

import (
	"encoding/json"
	"errors"
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Names of members of an object. Of the metadata a webhook may change labels and annotations alone.
const (
	metadata    = "metadata"
	labels      = "labels"
	annotations = "annotations"
)

// accept checks the object that a conversion webhook returned, and gives it the metadata of the original: the last part of webhookConverter.Convert
// of webhook_converter.go.
func accept(original *object, raw []byte, to schema.GroupVersionKind) ([]byte, error) {
	converted, err := parse(raw)
	if err != nil {
		return nil, err
	}
	switch got := converted.kind(); {
	case got.Kind == "":
		return nil, errors.New("it has no kind, or no proper apiVersion")
	case got.GroupVersion() != to.GroupVersion():
		return nil, fmt.Errorf("invalid groupVersion (expected %s, received %s)", to.GroupVersion(), got.GroupVersion())
	case got.Kind != to.Kind:
		return nil, fmt.Errorf("invalid kind (expected %s, received %s)", to.Kind, got.Kind)
	}
	if err := sameIdentity(original.part(metadata), converted.part(metadata)); err != nil {
		return nil, err
	}
	restored, err := restoreMetadata(original, converted)
	if err != nil {
		return nil, err
	}
	return converted.with(metadata, restored), nil
}

// sameIdentity is validateConvertedObject of webhook_converter.go, given the metadata.
func sameIdentity(original, converted *object) error {
	for _, name := range []string{"name", "namespace", "uid"} {
		if e, a := original.text(name), converted.text(name); e != a {
			return fmt.Errorf("must have the same metadata.%s: %q != %.300q", name, e, a)
		}
	}
	return nil
}

// restoreMetadata is the metadata of the original with the labels and annotations of the converted object: restoreObjectMeta of webhook_converter.go.
func restoreMetadata(original, converted *object) ([]byte, error) {
	raw := converted.get(metadata)
	if raw == nil {
		return nil, errors.New("missing metadata in converted object")
	}
	theirs, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("invalid metadata in converted object: %w", err)
	}
	ours := &object{}
	if raw = original.get(metadata); raw != nil {
		if ours, err = parse(raw); err != nil {
			return nil, fmt.Errorf("invalid metadata in input object: %w", err)
		}
	}
	out := []byte{'{'}
	for _, m := range ours.members {
		if m.name != labels && m.name != annotations {
			out = appendMember(out, m.name, ours.raw[m.start:m.end])
		}
	}
	for _, name := range []string{labels, annotations} {
		value := theirs.get(name)
		if isAbsent(value) {
			continue
		}
		if err := checkTexts(name, ours.get(name), value); err != nil {
			return nil, err
		}
		out = appendMember(out, name, value)
	}
	return append(out, '}'), nil
}

// checkTexts checks the labels or annotations that a webhook returned. Those that were there before need not be valid.
func checkTexts(name string, ours, theirs []byte) error {
	var before, after map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(theirs, &after); err != nil {
		return fmt.Errorf("invalid metadata.%s in converted object: %w", name, err)
	}
	if !isAbsent(ours) {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(ours, &before); err != nil {
			return fmt.Errorf("invalid metadata.%s in input object: %w", name, err)
		}
	}
	texts, changed := make(map[string]string, len(after)), len(before) != len(after)
	for key, value := range after {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("metadata.%s[%.300s] must be a string, but is %T in converted object", name, key, value)
		}
		texts[key] = text
		changed = changed || before[key] != value
	}
	switch {
	case !changed:
		return nil
	case name == labels:
		return metav1validation.ValidateLabels(texts, field.NewPath(metadata, labels)).ToAggregate()
	default:
		return apivalidation.ValidateAnnotations(texts, field.NewPath(metadata, annotations)).ToAggregate()
	}
}

func isAbsent(value []byte) bool { return len(value) == 0 || string(value) == "null" }

func appendMember(out []byte, name string, value []byte) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	quoted, _ := json.Marshal(name) //nolint:errchkjson // a string can always be written
	out = append(out, quoted...)
	out = append(out, ':')
	return append(out, value...)
}
