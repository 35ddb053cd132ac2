package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// SuggestField ends the error of an unknown field of a document with the fields beside it that are written nearly so.
func SuggestField(document reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	last := len(steps) - 1
	in := document
	for _, step := range steps[:last] {
		name, _, _ := strings.Cut(step, "[")
		if in = jsonFields(in)[name]; in == nil {
			return ""
		}
	}
	return suggest.DidYouMean(steps[last], slices.Sorted(maps.Keys(jsonFields(in))))
}

// HasField reports whether JSON has a field of a struct.
func HasField(of reflect.Type, name string) bool { return jsonFields(of)[name] != nil }

// jsonFields are the fields that JSON has of a struct, or of the structs of a list.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name := jsonName(f); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// jsonName is the name of a field in JSON; empty for the fields of an embedded struct.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
