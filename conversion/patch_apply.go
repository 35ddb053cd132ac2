package conversion

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// MaxPatchWork bounds the bytes that the operations of one patch read and move in the object. A path is read level by level, and the items of an
// array move when an operation adds or removes an item in front of them. It takes about two seconds. A patch that adds 10,000 items in front of an
// array of 10,000 moves 1.2 GB; a patch of a value a few levels deep reads the object once or twice.
const MaxPatchWork = 2 << 30

// patcher applies the operations of a patch to one document, as gopkg.in/evanphx/json-patch.v4 does, with which kube-apiserver
// applies them: FuzzPatch compares the two. The library copies an array for each item that is added or removed, and keeps a copy of
// all that a path leads through at each level; nothing bounds it. Here values stay where they are, and the work is counted.
type patcher struct {
	allowance Allowance
	root      *patchNode
	work      int64 // bytes that were read and moved
	copied    int64 // bytes that copy operations have added
	err       error // why the work ends before its end

	spare []patchNode // allocated and not in use yet
	nodes int         // how many are in use
}

// applyOperations returns an object with the operations applied. Objects that a path leads through come out with their members sorted, and only the
// last member of each name. Texts are read as kube-apiserver reads them (ValidText).
func applyOperations(a Allowance, object []byte, operations []operation) ([]byte, error) {
	p := &patcher{allowance: a, root: &patchNode{raw: bytes.TrimLeft(object, " \t\r\n")}}
	if len(p.root.raw) == 0 || p.root.raw[0] != '{' {
		return nil, errNoObject
	}
	p.open(p.root)
	for i := 0; i < len(operations) && p.err == nil; i++ {
		if err := p.apply(&operations[i]); err != nil {
			p.err = cmp.Or(p.err, err)
		}
		p.spend(0)
	}
	if p.err != nil {
		return nil, p.err
	}
	w := make(jsonWriter, 0, len(object)+len(object)/8)
	w.patchNode(p.root)
	result := escapeHTML(w)
	if CheckText(result) == nil {
		return result, nil
	}
	if err := grow(a, textGrowth*int64(len(result))); err != nil {
		return nil, err
	}
	return ValidText(result), nil
}

// spend counts bytes that are about to be read or moved, and ends the work when they are too many, or its time is over.
func (p *patcher) spend(n int) {
	if p.work += int64(n); p.err != nil {
		return
	}
	if p.work > MaxPatchWork {
		p.err = fmt.Errorf("%w: its operations read and move more than %d bytes of the object", ErrUndecodable, MaxPatchWork)
		return
	}
	p.err = stopped(p.allowance)
}

func (p *patcher) apply(o *operation) error {
	switch kind := o.kind(); kind {
	case "add":
		return p.edit(o, kind, "path", func(in *patchNode, key string) error { return p.add(in, key, o.node()) })
	case "remove":
		return p.edit(o, kind, "path", p.remove)
	case "replace":
		return p.doReplace(o)
	case "move":
		return p.doMove(o)
	case "test":
		return p.doTest(o)
	case "copy":
		return p.doCopy(o)
	default:
		return fmt.Errorf("Unexpected kind: %s", kind) //nolint:staticcheck // as the library says it
	}
}

// find goes to the container of the value that a path names, and returns it with the key of the value; nil when there is none.
func (p *patcher) find(path string) (in *patchNode, key string) {
	_, rest, ok := strings.Cut(path, "/")
	if !ok {
		return nil, ""
	}
	in = p.root
	for {
		token, more, further := strings.Cut(rest, "/")
		if !further {
			return in, unescapeToken(token)
		}
		next, err := in.get(unescapeToken(token))
		if err != nil || p.err != nil || !p.open(next) {
			return nil, ""
		}
		in, rest = next, more
	}
}

// patchTarget is where a pointer of an operation leads to.
type patchTarget struct {
	in   *patchNode // the container of the value
	key  string     // of the value
	path string     // the pointer
}

func (p *patcher) target(pointer []byte, name, kind, what string) (patchTarget, error) {
	path, err := stringOf(pointer, name)
	if err != nil {
		return patchTarget{}, fmt.Errorf("%s operation failed to decode %s: %w", kind, name, err)
	}
	in, key := p.find(path)
	if in == nil {
		return patchTarget{}, fmt.Errorf("%s operation does not apply: doc is missing %s: %q: %w", kind, what, path, errMissing)
	}
	return patchTarget{in, key, path}, nil
}

func (p *patcher) edit(o *operation, kind, what string, change func(in *patchNode, key string) error) error {
	to, err := p.target(o.path, "path", kind, what)
	if err != nil {
		return err
	}
	if err := change(to.in, to.key); err != nil {
		return fmt.Errorf("error in %s for path: '%s': %w", kind, to.path, err)
	}
	return nil
}

// doReplace takes a member that is not there yet, too.
func (p *patcher) doReplace(o *operation) error {
	if path, err := stringOf(o.path, "path"); err == nil && path == "" {
		root := o.node()
		if !p.open(root) {
			return errors.New("replace operation value must be object or array")
		}
		p.root = root
		return nil
	}
	to, err := p.target(o.path, "path", "replace", "path")
	if err != nil {
		return err
	}
	if _, err := to.in.get(to.key); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", to.path, errMissing)
	}
	if err := to.in.set(to.key, o.node()); err != nil {
		return fmt.Errorf("error in replace for path: '%s': %w", to.path, err)
	}
	return nil
}

func (p *patcher) doMove(o *operation) error {
	from, err := p.target(o.from, "from", "move", "from path")
	if err != nil {
		return err
	}
	v, err := from.in.get(from.key)
	if err == nil {
		err = p.remove(from.in, from.key)
	}
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", from.key, err)
	}
	return p.edit(o, "move", "destination path", func(in *patchNode, key string) error { return p.add(in, key, v) })
}

func (p *patcher) doTest(o *operation) error {
	path, err := stringOf(o.path, "path")
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	v := p.root
	if path != "" {
		at, err := p.target(o.path, "path", "test", "path")
		if err != nil {
			return err
		}
		if v, err = at.in.get(at.key); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", path, err)
		}
	}
	if v == nil && o.value == nil || p.equal(v, o.node()) {
		return nil
	}
	return fmt.Errorf("testing value %s failed: %w", path, ErrTestFailed)
}

// doCopy takes a member that is not there for null.
func (p *patcher) doCopy(o *operation) error {
	from, err := p.target(o.from, "from", "copy", "from path")
	if err != nil {
		return err
	}
	v, err := from.in.get(from.key)
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from.path, err)
	}
	to, err := p.target(o.path, "path", "copy", "destination path")
	if err != nil {
		return err
	}
	if v, err = p.copyOf(v); err != nil {
		return err
	}
	if err := p.add(to.in, to.key, v); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}

func (p *patcher) copyOf(v *patchNode) (*patchNode, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // a null
	}
	var w jsonWriter
	w.patchNode(v)
	raw := escapeHTML(w)
	p.spend(len(raw))
	if p.copied += int64(len(raw)); p.copied > maxCopiedBytes {
		//nolint:staticcheck // as the library says it
		return nil, fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d",
			p.copied, maxCopiedBytes)
	}
	return &patchNode{raw: raw}, nil
}
