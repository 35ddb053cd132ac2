package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// The results of an apply for an object.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
)

// Codes of findings that refuse an apply, beside the codes of package config.
const (
	codeRemoving = "removing"
	codeMoved    = "moved"
)

// applyRequest is one apply, decoded.
type applyRequest struct {
	access       access
	objects      []config.Object
	expected     map[string]string // resource versions, by key
	acknowledged []string
	now          time.Time
	uid          func() string
	inspect      func(context.Context, *match.Snapshot, []config.Object, func(config.Key) bool) config.Problems

	id          string                       // of this dispatcher
	offers      func(*match.Hook) bool       // whether a host that is connected here offers a hook and may serve it; nil if unknown
	digest      string                       // of the configuration in force here
	dispatchers []*configv1.DispatcherReport // that are live
}

// applyPlan is the edit of an apply to one state of the store, and the reasons to refuse it. newPlan makes it; nothing
// changes it afterwards.
type applyPlan struct {
	*edit

	results []string // by object

	// The reasons to refuse it, in the order in which they are reported.
	denied   error           // the author may not
	invalid  config.Problems // the objects are invalid
	moved    config.Problems // an object has another version than expected
	conflict config.Problems // with objects of the store or of another source
	dangers  config.Problems // not acknowledged

	notes config.Problems // findings that refuse nothing
}

// newPlan plans an apply. ctx bounds the evaluation of matchConditions for findings.
func newPlan(ctx context.Context, st *storedState, req *applyRequest) *applyPlan {
	plan := &applyPlan{edit: st.newEdit(req.access.identity, req.now)}
	plan.edit.writer = req.access.writer()
	after := maps.Clone(st.objects)
	for i := range req.objects {
		o := &req.objects[i]
		after[o.Key] = *o
		plan.check(st, req, o)
	}
	if plan.refused() {
		return plan
	}
	all := st.allWith(after)
	snapshot, problems := config.Recompile(st.compiled, "", all)
	touched := req.touched(st)
	plan.denied = st.authorize(req.access, after, touched)
	for i := range req.objects {
		plan.results = append(plan.results, plan.write(req, &req.objects[i]))
	}
	for _, p := range problems {
		switch {
		case !touched[p.Key]:
		case p.Severity == match.SeverityError:
			plan.invalid = append(plan.invalid, p)
		default:
			plan.notes = append(plan.notes, p)
		}
	}
	plan.pend(st, req, snapshot, touched)
	old, _ := config.Recompile(st.compiled, "", st.allWith(st.objects))
	before := map[match.HookID]*match.Hook{}
	for _, h := range old.Hooks() {
		before[h.ID] = h
	}
	plan.findNoHosts(req, before, snapshot, touched)
	plan.noteEntries(before, all, snapshot, touched)
	for _, p := range req.inspect(ctx, snapshot, all, func(key config.Key) bool { return touched[key] }) {
		switch {
		case lint.IsDanger(p.Code):
			plan.addDanger(req, p)
		case lint.Refuses(p):
			p.Severity = match.SeverityError
			plan.invalid = append(plan.invalid, p)
		default:
			plan.notes = append(plan.notes, p)
		}
	}
	return plan
}

func (plan *applyPlan) refused() bool {
	return plan.denied != nil || len(plan.invalid)+len(plan.moved)+len(plan.conflict)+len(plan.dangers) > 0
}

// touched returns the objects of the request, and the configurations that their routes name or named.
func (req *applyRequest) touched(st *storedState) map[config.Key]bool {
	touched := map[config.Key]bool{}
	for i := range req.objects {
		touch(touched, &req.objects[i])
		if old, ok := st.objects[req.objects[i].Key]; ok {
			touch(touched, &old)
		}
	}
	return touched
}

// check adds the reasons to refuse one object that do not depend on the others.
func (plan *applyPlan) check(st *storedState, req *applyRequest, o *config.Object) {
	refuse := func(to *config.Problems, code, field, message string) {
		*to = append(*to, config.Problem{
			Severity: match.SeverityError, Code: code, Key: o.Key, Kind: o.WrittenKind(), File: o.File, Line: o.Line, Field: field, Message: message,
		})
	}
	old := st.state.Records[o.Key]
	if other, ok := st.others[o.Key]; ok {
		refuse(&plan.conflict, config.CodeDuplicate, "", "the same object comes from the source "+other.Source+
			" ("+cmp.Or(other.Origin(), "unnamed")+"): change it there, or remove it there first")
	}
	if old != nil && old.Removing {
		refuse(&plan.conflict, codeRemoving, "", "the object is being removed: wait until it is gone")
	}
	if want, ok := req.expected[o.Key.String()]; ok && want != resourceVersion(old) {
		refuse(&plan.moved, codeMoved, "", "the object has resource version "+resourceVersion(old)+", not "+want+": read it again")
	}
	if old != nil {
		return
	}
	for _, path := range o.ClosedAtFirst() {
		refuse(&plan.invalid, config.CodeFailClosed, path,
			"a hook of this kind begins with Ignore: create it so, and close it by an update when it is known to work")
	}
}

// resourceVersion names a version of an object; "0" means that there is none.
func resourceVersion(r *etcdstore.Record) string {
	if r == nil {
		return "0"
	}
	return revisionText(r.Revision)
}

// write adds the record of an object to the edit, unless it is unchanged, and returns the result.
func (plan *applyPlan) write(req *applyRequest, o *config.Object) string {
	r := &etcdstore.Record{
		Key: o.Key, Manifest: o.Manifest, UID: req.uid(), Generation: 1, Actor: req.access.identity, Created: req.now, Changed: req.now,
	}
	old, result := plan.state.Records[o.Key], created
	if old != nil {
		if sameManifest(old.Manifest, o.Manifest) {
			return unchanged
		}
		result = updated
		r.UID, r.Generation, r.Created, r.Acknowledged = old.UID, old.Generation+1, old.Created, old.Acknowledged
	}
	plan.put(r, result+" "+o.Key.String())
	return result
}

// addDanger refuses the apply for a danger of an object that it touches, unless it is acknowledged. The record of the object
// names who acknowledged it first.
func (plan *applyPlan) addDanger(req *applyRequest, p config.Problem) {
	r := plan.record(p.Key)
	switch {
	case r == nil: // of another source, whose author is not the caller
	case r.Acknowledged[p.Code] != "":
		plan.notes = append(plan.notes, p)
	case slices.Contains(req.acknowledged, p.Code):
		plan.acknowledge(r, p.Code)
		plan.notes = append(plan.notes, p)
	default:
		plan.dangers = append(plan.dangers, p)
	}
}

func (plan *applyPlan) acknowledge(r *etcdstore.Record, code string) {
	next, change := *r, &plan.Change
	next.Acknowledged = map[string]string{}
	maps.Copy(next.Acknowledged, r.Acknowledged)
	next.Acknowledged[code] = change.Actor
	if !slices.Contains(change.Acknowledged, code) {
		change.Acknowledged = append(change.Acknowledged, code)
	}
	plan.put(&next, "acknowledged dangers of "+r.Key.String())
}

func sameManifest(a, b []byte) bool {
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
