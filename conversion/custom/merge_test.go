package custom

import (
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// withSpec is a definition of two versions, whose spec has fields in the first. The differential test of dispatcher/policy compares with
// kube-apiserver.
func withSpec(properties map[string]apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	crd := definition("v1", "v2")
	crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: properties}},
	}}
	return crd
}

func TestTheMergeTypeOfAVersionHasItsFields(t *testing.T) {
	d := compiled(t, withSpec(map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer", Description: "is left out"}}))
	object := func(field string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{field: int64(1)}}
	}
	for _, test := range []struct {
		version, field string
		ok             bool
	}{{"v1", "size", true}, {"v1", "other", false}, {"v2", "other", true}} {
		of, err := d.MergeType(widget(test.version), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := of.FromUnstructured(object(test.field)); (err == nil) != test.ok {
			t.Errorf("%s with %s: %v", test.version, test.field, err)
		}
	}
	for _, kind := range []string{"Gadget", "WidgetList"} {
		if of, err := d.MergeType(widget("v1").GroupVersion().WithKind(kind), nil); of != nil || err != nil {
			t.Errorf("%s: %v, error %v", kind, of, err)
		}
	}
	if of, err := d.MergeType(widget("v3"), nil); of != nil || err != nil {
		t.Errorf("v3: %v, error %v", of, err)
	}
}

func TestAMergeTypeIsBookedEachTimeAndMadeOnce(t *testing.T) {
	d := compiled(t, withSpec(map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}))
	full := errors.New("full")
	if _, err := d.MergeType(widget("v1"), func(int64) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	sum := int64(0)
	book := func(bytes int64) error {
		sum += bytes
		return nil
	}
	first, err := d.MergeType(widget("v1"), book)
	if err != nil {
		t.Fatal(err)
	}
	once := sum
	second, err := d.MergeType(widget("v1"), book)
	if err != nil || second != first {
		t.Errorf("%p, then %p: %v", first, second, err)
	}
	if once == 0 || sum != 2*once {
		t.Errorf("%d bytes, then %d in all", once, sum)
	}
}

func TestTheShapeOfASchemaIsBooked(t *testing.T) {
	few := compiled(t, withSpec(map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "integer"}})).Bytes()
	more := compiled(t, withSpec(map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "integer"}, "b": {Type: "integer"}})).Bytes()
	if more <= few {
		t.Errorf("%d bytes with one field, %d with two", few, more)
	}
}
