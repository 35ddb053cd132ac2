package kube

import (
	"reflect"

	"sigs.k8s.io/json"
)

// unmarshal decodes JSON as Kubernetes does.
func unmarshal(raw []byte, into any) error {
	return json.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// kindOf is the kind of the objects that T is made for: Kubernetes' types are named for their kinds. It is empty for
// types that take any kind. Decoding a Scale into a Deployment would not fail: it would lose everything in silence.
func kindOf[T any]() string {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || t.Name() == "PartialObjectMetadata" {
		return ""
	}
	if meta, ok := t.FieldByName("TypeMeta"); !ok || !meta.Anonymous {
		return ""
	}
	return t.Name()
}
