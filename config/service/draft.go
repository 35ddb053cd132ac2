package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/danger"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// What an apply does with an object.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
)

// Codes of what stands against an apply, beside those of package config.
const (
	codeRemoving = "removing"
	codeMoved    = "moved"
)

// wish is what somebody wants to be in force.
type wish struct {
	access       access
	objects      []config.Object
	expected     map[string]string // resource versions, by key
	acknowledged []string
	now          time.Time
	uid          func() string
	inspect      func(context.Context, *match.Snapshot, []config.Object, func(config.Key) bool) config.Problems
}

// draft is a wish, held against a base: what there is to commit, and what stands against it. It is made by newDraft and not
// changed afterwards.
type draft struct {
	edit    etcdstore.Edit
	results []string // by object

	// In the order in which they are answered: each stands against the edit.
	denied   error           // the author may not
	invalid  config.Problems // what is wished for cannot be
	moved    config.Problems // an object is not as expected
	conflict config.Problems // it can, but not here
	dangers  config.Problems // nobody has acknowledged

	notes config.Problems // nothing stands against these
}

// newDraft holds a wish against a base. ctx bounds what matchConditions take when it is looked for what is probably not meant.
func newDraft(ctx context.Context, b *base, w *wish) *draft {
	d := &draft{}
	after := maps.Clone(b.objects)
	for i := range w.objects {
		o := &w.objects[i]
		after[o.Key] = *o
		d.against(b, w, o)
	}
	if d.refused() {
		return d
	}
	all := b.with(after)
	snapshot, problems := config.Recompile(b.compiled, "", all)
	touched := w.touched(b)
	d.denied = b.trespass(w.access, after, touched)
	d.write(b, w)
	for _, p := range problems {
		switch {
		case !touched[p.Key]:
		case p.Severity == match.SeverityError:
			d.invalid = append(d.invalid, p)
		default:
			d.notes = append(d.notes, p)
		}
	}
	d.pend(b, w, snapshot, touched)
	for _, p := range w.inspect(ctx, snapshot, all, func(key config.Key) bool { return touched[key] }) {
		if danger.Is(p.Code) {
			d.risk(b, w, p)
		} else {
			d.notes = append(d.notes, p)
		}
	}
	return d
}

// refused reports whether something stands against the draft.
func (d *draft) refused() bool {
	return d.denied != nil || len(d.invalid)+len(d.moved)+len(d.conflict)+len(d.dangers) > 0
}

// touched are the objects that are wished for, and the configurations that their routes name or named.
func (w *wish) touched(b *base) map[config.Key]bool {
	touched := map[config.Key]bool{}
	for i := range w.objects {
		touch(touched, &w.objects[i])
		if old, ok := b.objects[w.objects[i].Key]; ok {
			touch(touched, &old)
		}
	}
	return touched
}

// against finds what stands against one object by itself.
func (d *draft) against(b *base, w *wish, o *config.Object) {
	say := func(to *config.Problems, code, field, message string) {
		*to = append(*to, config.Problem{
			Severity: match.SeverityError, Code: code, Key: o.Key, Kind: o.WrittenKind(), File: o.File, Line: o.Line, Field: field, Message: message,
		})
	}
	old := b.state.Records[o.Key]
	if other, ok := b.others[o.Key]; ok {
		say(&d.conflict, config.CodeDuplicate, "", "the same object comes from the source "+other.Source+
			" ("+cmp.Or(other.Origin(), "unnamed")+"): change it there, or remove it there first")
	}
	if old != nil && old.Removing {
		say(&d.conflict, codeRemoving, "", "the object is being removed: wait until it is gone")
	}
	if want, ok := w.expected[o.Key.String()]; ok && want != resourceVersion(old) {
		say(&d.moved, codeMoved, "", "the object has resource version "+resourceVersion(old)+", not "+want+": read it again")
	}
	if old != nil || o.WrittenKind() == o.Kind || o.Validating == nil {
		return
	}
	for i, hook := range o.Validating.Webhooks {
		if hook.FailurePolicy != nil && *hook.FailurePolicy == admissionregistrationv1.Fail {
			say(&d.invalid, config.CodeFailClosed, "externalAdmissionHooks["+strconv.Itoa(i)+"].failurePolicy",
				"a hook of v1alpha1 begins with Ignore: create it so, and close it by an update when it is known to work")
		}
	}
}

// resourceVersion names a version of an object; "0" is that there is none.
func resourceVersion(r *etcdstore.Record) string {
	if r == nil {
		return "0"
	}
	return strconv.FormatInt(r.Revision, 10)
}

// write makes the records.
func (d *draft) write(b *base, w *wish) {
	change := &d.edit.Change
	change.At, change.Actor = w.now, w.access.identity
	for i := range w.objects {
		o := &w.objects[i]
		old, result := b.state.Records[o.Key], updated
		switch {
		case old == nil:
			result = created
		case same(old.Manifest, o.Manifest):
			result = unchanged
		}
		d.results = append(d.results, result)
		if result == unchanged {
			continue
		}
		r := &etcdstore.Record{
			Key: o.Key, Manifest: o.Manifest, UID: w.uid(), Generation: 1, Actor: w.access.identity, Created: w.now, Changed: w.now,
		}
		if old != nil {
			r.UID, r.Generation, r.Created, r.Acknowledged = old.UID, old.Generation+1, old.Created, old.Acknowledged
		}
		d.edit.Put = append(d.edit.Put, r)
		change.Actions, change.Keys = append(change.Actions, result+" "+o.Key.String()), append(change.Keys, o.Key.String())
	}
}

// risk holds a danger of what is touched against the draft, unless it is acknowledged. One that is acknowledged with this
// wish is recorded with who did.
func (d *draft) risk(b *base, w *wish, p config.Problem) {
	r := d.record(b, p.Key)
	switch {
	case r == nil: // of another source, whose author is not here to be asked
	case r.Acknowledged[p.Code] != "":
		d.notes = append(d.notes, p)
	case slices.Contains(w.acknowledged, p.Code):
		d.acknowledge(r, p.Code, w)
		d.notes = append(d.notes, p)
	default:
		d.dangers = append(d.dangers, p)
	}
}

// record is an object as it will be, or is if nothing about it changes.
func (d *draft) record(b *base, key config.Key) *etcdstore.Record {
	for _, r := range d.edit.Put {
		if r.Key == key {
			return r
		}
	}
	return b.state.Records[key]
}

// acknowledge writes down who takes a danger upon itself.
func (d *draft) acknowledge(r *etcdstore.Record, code string, w *wish) {
	next := *r
	next.Acknowledged = maps.Clone(r.Acknowledged)
	if next.Acknowledged == nil {
		next.Acknowledged = map[string]string{}
	}
	next.Acknowledged[code] = w.access.identity
	change := &d.edit.Change
	if !slices.Contains(change.Acknowledged, code) {
		change.Acknowledged = append(change.Acknowledged, code)
	}
	d.amend(&next, "acknowledged dangers of "+r.Key.String())
}

// amend puts a record in the place of the one that the edit has. action is what is done to the object if nothing else is.
func (d *draft) amend(next *etcdstore.Record, action string) {
	for i, put := range d.edit.Put {
		if put.Key == next.Key {
			d.edit.Put[i] = next
			return
		}
	}
	d.edit.Put = append(d.edit.Put, next)
	change := &d.edit.Change
	change.Actions, change.Keys = append(change.Actions, action), append(change.Keys, next.Key.String())
}

// same reports whether two manifests say the same.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonical := func(data []byte) []byte {
		var value any
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if d.Decode(&value) != nil {
			return data
		}
		out, err := json.Marshal(value)
		if err != nil {
			return data
		}
		return out
	}
	return bytes.Equal(canonical(a), canonical(b))
}
