package config

import (
	"reflect"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// suggestField ends the error of an unknown field with the fields beside it that are written nearly so.
func suggestField(document reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	last := len(steps) - 1
	in := document
	for _, step := range steps[:last] {
		name, _, _ := strings.Cut(step, "[")
		if in = jsonFields(in)[name]; in == nil {
			return ""
		}
	}
	var names []string
	for name := range jsonFields(in) {
		names = append(names, name)
	}
	return suggest.DidYouMean(steps[last], names)
}

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
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}
