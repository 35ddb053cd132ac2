package conversion

import (
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
)

// ConflictError is the error of Merge for a field that both sides have changed, and not to the same value.
type ConflictError struct {
	// Field is the path of the field, for example "metadata.labels.app" or "spec.containers".
	Field string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return e.Field + " was changed to different values at the same time"
}

// Merge returns ours with the differences between base and theirs: three JSON objects, of which ours and theirs were both made of base. A field that
// one side changes has the value of that side. An array is one field. changed is false if the result is ours.
//
// Error: *ConflictError, or an argument is not a JSON object.
func Merge(base, ours, theirs []byte) (merged []byte, changed bool, err error) {
	var trees [3]node
	for i, raw := range [...][]byte{base, ours, theirs} {
		if trees[i], err = parseObject(raw); err != nil {
			return nil, false, fmt.Errorf("merge: %w", err)
		}
	}
	var m threeWay
	result := m.value(&trees[0], &trees[1], &trees[2])
	switch {
	case m.conflict != nil:
		return nil, false, m.conflict
	case result == &trees[1]:
		return ours, false, nil
	}
	out := jsonWriter(make([]byte, 0, len(ours)+len(theirs)/4))
	out.node(result)
	return out, true, nil
}

// threeWay is Merge for trees. A nil node is a member that is not there.
type threeWay struct {
	path     []string
	conflict *ConflictError // the first one
}

func (m *threeWay) value(base, ours, theirs *node) *node {
	switch {
	case same(theirs, base) || same(theirs, ours):
		return ours
	case same(ours, base):
		return theirs
	case ours != nil && theirs != nil && ours.kind == '{' && theirs.kind == '{' && (base == nil || base.kind == '{'):
		return m.members(base, ours, theirs)
	case m.conflict == nil:
		m.conflict = &ConflictError{Field: fieldPath(m.path)}
	}
	return ours
}

// members returns ours itself if none of its members changes. base may be nil.
func (m *threeWay) members(base, ours, theirs *node) *node {
	if base == nil {
		base = &node{kind: '{', parsed: true}
	}
	own := ours.elements()
	out, changed := &node{kind: '{', parsed: true, children: make([]node, 0, len(own)+1)}, false
	joinMembers(own, theirs.elements(), func(name []byte, own, theirs *node) {
		m.path = append(m.path, string(name))
		v := m.value(base.member(name), own, theirs)
		m.path = m.path[:len(m.path)-1]
		changed = changed || v != own
		if v != nil {
			v.name = name
			out.children = append(out.children, *v)
		}
	})
	if !changed {
		return ours
	}
	return out
}

// fieldPath is the path of a field as Kubernetes writes it.
func fieldPath(names []string) string {
	var path strings.Builder
	for i, name := range names {
		switch {
		case strings.ContainsAny(name, "./"):
			path.WriteString("[" + name + "]")
		case i == 0:
			path.WriteString(name)
		default:
			path.WriteString("." + name)
		}
	}
	return path.String()
}

// ImmutableError reports a change of a field that identifies the object.
type ImmutableError struct {
	// Field is the path of the field.
	Field string
	// Was and Is are its values before and after the change.
	Was, Is string
}

// Error implements error.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("%s cannot be changed: it is %q, not %q", e.Field, e.Was, e.Is)
}

// identity has the fields that an initializer may not change. The last three are set by the cluster, or belong to staging.
type identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string          `json:"name"`
		GenerateName    string          `json:"generateName"`
		Namespace       string          `json:"namespace"`
		UID             string          `json:"uid"`
		ResourceVersion string          `json:"resourceVersion"`
		Initializers    json.RawMessage `json:"initializers"`
	} `json:"metadata"`
}

// SameIdentity compares the fields of a JSON object that no initializer may change: its kind, names and namespace (spec/1), and the fields that the
// cluster sets.
//
// Error: *ImmutableError, or an argument is not JSON.
func SameIdentity(before, after []byte) error {
	var was, is identity
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, &is); err != nil {
		return fmt.Errorf("the object is not JSON: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(before, &was); err != nil {
		return fmt.Errorf("the object before the change is not JSON: %w", err)
	}
	for _, f := range [...]ImmutableError{
		{"apiVersion", was.APIVersion, is.APIVersion},
		{"kind", was.Kind, is.Kind},
		{"metadata.name", was.Metadata.Name, is.Metadata.Name},
		{"metadata.generateName", was.Metadata.GenerateName, is.Metadata.GenerateName},
		{"metadata.namespace", was.Metadata.Namespace, is.Metadata.Namespace},
		{"metadata.uid", was.Metadata.UID, is.Metadata.UID},
		{"metadata.resourceVersion", was.Metadata.ResourceVersion, is.Metadata.ResourceVersion},
		{"metadata.initializers", string(was.Metadata.Initializers), string(is.Metadata.Initializers)},
	} {
		if f.Was != f.Is {
			return &f
		}
	}
	return nil
}
