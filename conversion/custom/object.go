package custom

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// object is a JSON object as it stands, and where its own members are.
type object struct {
	raw     []byte
	members []jsonMember // including duplicate names
}

// jsonMember is where the value of a member stands.
type jsonMember struct {
	name       string
	start, end int
}

var errNoObject = errors.New("not a JSON object")

// parse finds the members of a JSON document that is one object.
func parse(raw []byte) (*object, error) {
	s := conversion.NewScanner(raw)
	if s.Next() != '{' {
		return nil, errNoObject
	}
	o := &object{raw: raw}
	for name := range s.Members {
		value := s.Skip()
		end := len(raw) - len(s.Rest())
		o.members = append(o.members, jsonMember{name: string(name), start: end - len(value), end: end})
	}
	s.End()
	return o, s.Err()
}

// get is the value of a member, the last of several; nil when there is none.
func (o *object) get(name string) []byte {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := o.members[i]; m.name == name {
			return o.raw[m.start:m.end]
		}
	}
	return nil
}

// text is the value of a member that is a string; empty when it is none.
func (o *object) text(name string) string {
	var text string
	if json.Unmarshal(o.get(name), &text) != nil {
		return ""
	}
	return text
}

// part is the value of a member that is an object; an empty one when it is none.
func (o *object) part(name string) *object {
	if part, err := parse(o.get(name)); err == nil {
		return part
	}
	return &object{}
}

// kind is the kind and version that the object says it has. It is empty when the apiVersion has more than one slash
// (GroupVersionKind of unstructured.Unstructured).
func (o *object) kind() schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(o.text("apiVersion"))
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gv.WithKind(o.text("kind"))
}

// isEmpty reports whether the object is nothing but a kind and an apiVersion: isEmptyUnstructuredObject of
// webhook_converter.go.
func (o *object) isEmpty() bool {
	for _, m := range o.members {
		if m.name != "kind" && m.name != "apiVersion" {
			return false
		}
	}
	return o.get("kind") != nil && o.get("apiVersion") != nil
}

// with returns the document with another value for a member, and else unchanged.
func (o *object) with(name string, value []byte) []byte {
	out := make([]byte, 0, len(o.raw)+len(value))
	done := 0
	for _, m := range o.members {
		if m.name == name {
			out = append(out, o.raw[done:m.start]...)
			out = append(out, value...)
			done = m.end
		}
	}
	return append(out, o.raw[done:]...)
}
