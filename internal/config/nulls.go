package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// dropNulls reads null in a document of our group as API servers do in a custom resource (PruneNonNullableNullsWithoutDefaults of
// k8s.io/apiextensions-apiserver), so that it means the same in each source: a field, or a key of a map, is absent, and an item of a list is a fault. The
// decoder of Kubernetes' own kinds makes an empty text of a key and of an item. It reports the first fault, and whether there is none.
func (d *document) dropNulls(into any) (ok bool) {
	var written map[string]any
	if !bytes.Contains(d.json, []byte("null")) || kjson.UnmarshalCaseSensitivePreserveInts(d.json, &written) != nil || written["apiVersion"] != kinds.APIVersion {
		return true
	}
	delete(written, "metadata") // API servers read the metadata of all kinds alike
	item := dropIn(reflect.ValueOf(into), written, "")
	if item != "" {
		d.fault(CodeField, item, "null is no item of a list: remove it, or write a value")
	}
	return item == ""
}

// dropIn is dropNulls for the value of a part of the document. It returns the path of the first item that is null.
func dropIn(read reflect.Value, written any, path string) (item string) {
	for read.Kind() == reflect.Pointer {
		read = read.Elem()
	}
	if !read.IsValid() || read.Type() == reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]() || read.Type() == reflect.TypeFor[[]map[string]any]() {
		return "" // whole objects
	}
	switch written := written.(type) {
	case []any:
		if read.Kind() == reflect.Slice {
			return dropInList(read, written, path)
		}
	case map[string]any:
		return dropInObject(read, written, path)
	}
	return ""
}

func dropInList(read reflect.Value, written []any, path string) (item string) {
	for i := range min(len(written), read.Len()) {
		if item = fmt.Sprintf("%s[%d]", path, i); written[i] == nil {
			return item
		}
		if item = dropIn(read.Index(i), written[i], item); item != "" {
			return item
		}
	}
	return ""
}

func dropInObject(read reflect.Value, written map[string]any, path string) (item string) {
	if read.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(read.Type()) {
			name := jsonName(f)
			if item = dropIn(read.FieldByIndex(f.Index), written[name], join(path, name)); item != "" {
				return item
			}
		}
	}
	if read.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(written)) {
			of := reflect.ValueOf(key).Convert(read.Type().Key())
			if written[key] == nil {
				read.SetMapIndex(of, reflect.Value{})
			} else if item = dropIn(read.MapIndex(of), written[key], join(path, key)); item != "" {
				return item
			}
		}
	}
	return ""
}
