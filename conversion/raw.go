package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Raw changes and compares objects as the JSON that they are, without knowing types: nothing is defaulted, and no field
// is lost.
type Raw struct {
	// Allowance bounds the time and the memory that it takes; nil is no bound.
	Allowance Allowance
}

// Apply is ApplyPatch, but the result must still be an object of Kubernetes: it has a kind, and its apiVersion, if any, can be parsed. kube-apiserver
// decodes the result of every patch, also for objects without a Go type. An object that was none before the patch need not be one after it.
func (r Raw) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	before := ExtentOf(object).Tree() + ExtentOf(patch).Tree()
	if err := grow(r.Allowance, before); err != nil {
		return nil, false, err
	}
	defer shrink(r.Allowance, before)
	e, err := applyPatch(r.Allowance, object, patch)
	if err == nil && e.Changed && !(readAlike(&e.from, &e.to) && inRange(patch)) {
		err = r.stillReadable(object, e.Raw)
	}
	if err != nil {
		return nil, false, err
	}
	return e.Raw, e.Changed, nil
}

// Diff is DiffPatch. It charges its memory and is not refused: the patches before it had as much.
func (r Raw) Diff(from, to []byte) ([]byte, error) {
	if r.Allowance != nil {
		n := ExtentOf(from).Tree() + ExtentOf(to).Tree()
		r.Allowance.Charge(n)
		defer r.Allowance.Shrink(n)
	}
	return DiffPatch(from, to)
}

// Initialized applies the change of an initializer, base to result, to current ([Merge]). Other initializers made current of base at the same time.
// An initializer may not change the identity of an object ([SameIdentity]).
func (r Raw) Initialized(base, current, result []byte) (merged []byte, changed bool, err error) {
	if err := SameIdentity(base, result); err != nil {
		return nil, false, err
	}
	if bytes.Equal(base, current) {
		return result, true, nil
	}
	n := ExtentOf(base).Tree() + ExtentOf(current).Tree() + ExtentOf(result).Tree()
	if err := grow(r.Allowance, n); err != nil {
		return nil, false, err
	}
	defer shrink(r.Allowance, n)
	return Merge(base, current, result)
}

func (r Raw) stillReadable(from, to []byte) error {
	n := ExtentOf(from).Untyped() + ExtentOf(to).Untyped()
	if err := grow(r.Allowance, n); err != nil {
		return err
	}
	defer shrink(r.Allowance, n)
	err := readable(to)
	if err != nil && readable(from) == nil {
		return fmt.Errorf("the patched object cannot be read: %w", err)
	}
	return nil
}

// readable reads an object as kube-apiserver reads one without a Go type.
func readable(object []byte) error {
	if _, err := json.DefaultMetaFactory.Interpret(object); err != nil {
		return err
	}
	_, _, err := unstructured.UnstructuredJSONScheme.Decode(object, nil, &unstructured.Unstructured{})
	if runtime.IsMissingKind(err) {
		return errors.New("it has no kind") // The error itself quotes the whole object.
	}
	return err
}

// readAlike tells cheaply that to can be read if from can: their kind and apiVersion are the same. It leaves out numbers that are out of range;
// parsing has refused all other errors. False means undecided.
func readAlike(from, to *node) bool {
	a, plain := typeMeta(from)
	b, plainToo := typeMeta(to)
	if !plain || !plainToo {
		return false
	}
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) || a[i] != nil && !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// typeMeta finds apiVersion and kind; false when there are others that differ in their case alone, for which Kubernetes
// looks too.
func typeMeta(object *node) (found [2]*node, plain bool) {
	plain = true
	for i, name := range [...]string{"apiVersion", "kind"} {
		members := object.elements()
		for j := range members {
			switch member := &members[j]; {
			case string(member.name) == name:
				found[i] = member
			case bytes.EqualFold(member.name, []byte(name)):
				plain = false
			}
		}
	}
	return found, plain
}

// inRange reports whether all numbers of a patch can be read as a float64, as Kubernetes reads those that are no int64. Where
// an object can be read, a number that cannot comes from the patch.
func inRange(patch []byte) bool {
	p := parser{Scanner: Scanner{data: patch}, levels: maxDepth}
	root := p.parse(nil, 0)
	return p.err == nil && numbersInRange(&root)
}

func numbersInRange(n *node) bool {
	const surely = 300 // Digits that a float64 has the range for.
	if n.kind == '0' && (len(n.raw) > surely || bytes.ContainsAny(n.raw, "eE")) {
		_, err := strconv.ParseFloat(string(n.raw), 64)
		return err == nil
	}
	for i := range n.children {
		if !numbersInRange(&n.children[i]) {
			return false
		}
	}
	return true
}
