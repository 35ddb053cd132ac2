package dispatcher_test

import (
	"bytes"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// deviation is a row of docs/deviations.md. It explains a difference by asking kube-apiserver another question: the same request without the
// situation in which Portcullis differs.
type deviation struct {
	id string
	// explains reports whether the deviation is part of how the outcomes differ. It takes its part out of the difference.
	explains func(x *explanation) bool
}

// deviations are the rows of docs/deviations.md that this test can see, in the order in which they are tried. It cannot see D5: the API server
// defaults stored objects, and so does the oracle.
func deviations() []deviation {
	return []deviation{
		{"D11", (*explanation).wildcardsLeaveOut},
		{"D7", (*explanation).failingOpenIsTold},
		{"D4", (*explanation).exemptReview},
		{"D8", (*explanation).redirects},
		{"D2", (*explanation).noTimeLeft},
		{"D9", (*explanation).sharedTime},
		{"D1", (*explanation).denialFirst},
		{"D3", (*explanation).denialsFold},
		{"D6", (*explanation).wholeFractions},
		{"B1", (*explanation).unknownFields},
		{"B9", (*explanation).writtenAnew},
		{"B7", (*explanation).thereAndBack},
	}
}

// explanation is a difference on its way to being explained.
type explanation struct {
	lab        *laboratory
	experiment *experiment
	edits      []func() edit      // of the question that want answers, anew each time
	readings   []func(o *outcome) // of the answers: they take out the additions of an edit
	most       int                // calls, of which the question is; 0 is all
	want, got  outcome
}

// settled reports whether nothing is left to be explained.
func (x *explanation) settled() bool { return differ(x.want, x.got) == "" }

// ask asks kube-apiserver about the experiment with other answers of the hooks, on top of those so far.
func (x *explanation) ask(more ...edit) outcome {
	edits := make([]edit, 0, len(x.edits)+len(more))
	for _, e := range x.edits {
		edits = append(edits, e())
	}
	o := x.lab.kubernetes(x.experiment, append(edits, more...)...)
	for _, read := range x.readings {
		read(&o)
	}
	if x.most > 0 {
		o.Calls = o.Calls[:min(len(o.Calls), x.most)]
	}
	return o
}

// insist makes an edit part of the question from now on.
func (x *explanation) insist(e edit) { x.edits = append(x.edits, func() edit { return e }) }

// openWarning is the warning of Portcullis about a hook that failed open.
var openWarning = regexp.MustCompile(`^hook "([^"]*)" failed \([a-z_]+\) and was skipped: its failure policy is Ignore$`)

// failingOpenIsTold is D7: each hook that failed open is in a warning too.
func (x *explanation) failingOpenIsTold() bool {
	var others, told []string
	for _, w := range x.got.Warnings {
		if m := openWarning.FindStringSubmatch(w); m != nil {
			told = append(told, m[1])
			continue
		}
		others = append(others, w)
	}
	slices.Sort(told)
	if len(told) == 0 || !slices.Equal(slices.Compact(told), x.got.FailedOpen) {
		return false
	}
	x.got.Warnings = others
	return true
}

// wildcardsLeaveOut is D11: a wildcard does not cover leases and events.
func (x *explanation) wildcardsLeaveOut() bool {
	r := x.experiment.Request.GetResource()
	switch r.GetGroup() + "/" + r.GetResource() {
	case "coordination.k8s.io/leases", "events.k8s.io/events", "/events":
	default:
		return false
	}
	before := x.want
	x.experiment = x.experiment.clone()
	x.experiment.named = true
	x.want = x.ask()
	return differ(before, x.want) != ""
}

// exemptReview is D4: token and access reviews are never sent to hooks.
func (x *explanation) exemptReview() bool {
	r := x.experiment.Request.GetResource()
	exempt := map[string][]string{
		"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
		"authorization.k8s.io":  {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	}
	if !slices.Contains(exempt[r.GetGroup()], r.GetResource()) {
		return false
	}
	x.want = outcome{Allowed: true, Object: canonicalJSON(x.experiment.Request.GetObject().GetRaw()), Audit: map[string]string{}}
	return true
}

// noTimeLeft is D2: when the time of a request ends at a fail-open mutating hook, those left follow their own policies, as
// if each had failed, in place of a 504. Nobody is called any more.
func (x *explanation) noTimeLeft() bool {
	return len(x.got.Calls) == len(x.want.Calls) && x.outOfTime()
}

// sharedTime is D9: a fail-open mutating hook that hangs takes its share of the time of a request, in place of all of it
// and a 504, and those that come after are called as if it had failed.
func (x *explanation) sharedTime() bool {
	return len(x.got.Calls) > len(x.want.Calls) && x.outOfTime()
}

// outOfTime asks kube-apiserver again, where the hooks that hang fail, and so do all hooks behind the last called hook.
func (x *explanation) outOfTime() bool {
	if x.experiment.Stage != mutate || x.experiment.Deadline == 0 || x.want.Status.Code != 504 {
		return false
	}
	made, last := 0, false // calls, and whether the last call of Portcullis hangs
	failing := func() edit {
		made = 0
		return func(_ string, a oracle.Answer) oracle.Answer {
			if made++; made <= len(x.got.Calls) {
				last = a.Hang
			}
			if a.Hang || made > len(x.got.Calls) {
				return oracle.Answer{Drop: true}
			}
			return a
		}
	}
	x.edits, x.most = append(x.edits, failing), len(x.got.Calls)
	failed := x.ask()
	if made > len(x.got.Calls) && !last {
		return false
	}
	x.want = failed
	return true
}

// redirects is D8: they are not followed, and a call that ends in one has failed.
func (x *explanation) redirects() bool {
	redirected := false
	stay := func(_ string, a oracle.Answer) oracle.Answer {
		if slices.ContainsFunc(a.Before, func(b oracle.Answer) bool { return b.Header["Location"] != nil }) {
			redirected = true
			return oracle.Status(http.StatusInternalServerError)
		}
		return a
	}
	x.insist(stay) // also for hooks that are called only in the questions to come
	if stayed := x.ask(); redirected {
		x.want = stayed
	}
	return redirected
}

// denialFirst is D1: a denial is read before everything else in an answer. Such a denial drops the patch, and for a webhook the other errors in its
// answer.
func (x *explanation) denialFirst() bool {
	hooks := map[string]scripted{}
	for _, h := range x.experiment.world.hooks(x.experiment.Stage) {
		hooks[h.key] = h
	}
	malformed := false
	mend := func(key string, a oracle.Answer) oracle.Answer {
		if a.Response == nil || a.Response.Allowed {
			return a
		}
		if h := hooks[key]; h.https && h.denies(a) {
			malformed = true
			a.Edit, a.Cut, a.Code, a.Header, a.Drop = nil, 0, 0, nil, false
		}
		if a.Response.Patch != nil || a.Response.PatchType != nil {
			malformed = true
			a.Response = a.Response.DeepCopy()
			a.Response.Patch, a.Response.PatchType = nil, nil
		}
		return a
	}
	mended := x.ask(mend)
	if malformed {
		x.want = mended
		x.insist(mend)
	}
	return malformed
}

// denialsFold is D3: denials are folded before failures, and both in the order of the hooks. After a denial the others are not waited for, if they
// have no side effects, and a dry run that a hook cannot take part in is refused before any call: a hook that is not waited for leaves no trace.
func (x *explanation) denialsFold() bool {
	if x.experiment.Stage != validate || x.want.Allowed || x.got.Allowed {
		return false
	}
	possible, early := x.refusals()
	if !slices.Contains(possible, x.got.Status) {
		return false
	}
	x.want.Status = x.got.Status
	if early && contained(x.got, x.want) {
		x.want.Calls, x.want.Warnings, x.want.Audit, x.want.FailedOpen = x.got.Calls, x.got.Warnings, x.got.Audit, x.got.FailedOpen
	}
	return true
}

// refusals are the refusals that may count for Portcullis, and early is whether they end the review before every call has ended. They come from a
// review for each hook alone, in which the other hooks allow. A dry run is asked without dryRun: the hooks match and answer the same, since no
// condition of the test reads dryRun.
func (x *explanation) refusals() (possible []status, early bool) {
	dryRun := x.experiment.Request.GetDryRun()
	earnest := *x
	earnest.experiment = x.experiment.clone()
	earnest.experiment.Request = inEarnest(x.experiment.Request)
	mute := earnest.experiment.unmute()
	if len(mute) > 0 {
		earnest.lab = newLaboratory(x.lab.t, earnest.experiment.world)
	}
	matching := earnest.ask(func(string, oracle.Answer) oracle.Answer { return oracle.Allow() })
	var denials, failures, conflicts []status
	waited := false // for a denial: those behind it come too late
	for _, h := range x.experiment.world.hooks(x.experiment.Stage) {
		if !slices.ContainsFunc(matching.Calls, func(c call) bool { return c.Key == h.key }) {
			continue
		}
		alone := earnest.ask(func(other string, a oracle.Answer) oracle.Answer {
			if other == h.key {
				return a
			}
			return oracle.Allow()
		})
		switch effects := ptr.Deref(h.SideEffects, ""); {
		case dryRun && effects == "":
			failures = append(failures, h.failure()...)
		case dryRun && (effects == admissionregistrationv1.SideEffectClassSome || effects == admissionregistrationv1.SideEffectClassUnknown):
			conflicts = append(conflicts, status{Code: 400, Reason: "BadRequest", Message: sharedMessage(`admission webhook "` + h.Name + `" does not support dry run`)})
		case slices.Contains(mute, h.key):
			failures = append(failures, h.failure()...)
		case alone.Allowed:
		case !strings.Contains(alone.Status.Message, "denied the request"):
			failures = append(failures, alone.Status)
		case !waited:
			denials = append(denials, alone.Status)
			waited = effects != admissionregistrationv1.SideEffectClassNone
		}
	}
	switch {
	case len(conflicts) > 0:
		return conflicts[:1], true
	case len(denials) > 0:
		return denials, true
	}
	return failures[:min(len(failures), 1)], false
}

// failure is the refusal, if any, of a request in which the hook was not called.
func (h scripted) failure() []status {
	if ptr.Deref(h.FailurePolicy, "") == admissionregistrationv1.Ignore {
		return nil
	}
	return []status{{Code: 500, Reason: internalError, Message: sharedMessage(`failed calling webhook "` + h.Name + `": `)}}
}

// wholeFractions is D6: numbers keep their spelling. kube-apiserver writes a whole fraction as an integer when it encodes
// the object for the next patch, which then counts as the change of that patch.
func (x *explanation) wholeFractions() bool {
	spelt := false
	respell := func(_ string, a oracle.Answer) oracle.Answer {
		if a.Response != nil && bytes.Contains(a.Response.Patch, []byte(wholeFraction)) {
			spelt = true
			a.Response = a.Response.DeepCopy()
			a.Response.Patch = bytes.ReplaceAll(a.Response.Patch, []byte(wholeFraction), []byte(wholeNumber))
		}
		return a
	}
	respelt := x.ask(respell)
	if spelt {
		x.want = respelt
		x.insist(respell)
	}
	return spelt
}

// contained reports whether b has every call, warning, fail-open notice and annotation of a.
func contained(a, b outcome) bool {
	return within(a.Calls, b.Calls) && within(a.Warnings, b.Warnings) && within(a.FailedOpen, b.FailedOpen) &&
		within(slices.Collect(maps.Keys(a.Audit)), slices.Collect(maps.Keys(b.Audit)))
}

// within reports whether each of a is in b, at least as often.
func within[T comparable](a, b []T) bool {
	left := map[T]int{}
	for _, v := range b {
		left[v]++
	}
	for _, v := range a {
		if left[v]--; left[v] < 0 {
			return false
		}
	}
	return true
}

// inEarnest is a request that is no dry run.
func inEarnest(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	r = cloneRequest(r)
	r.DryRun = nil
	return r
}
