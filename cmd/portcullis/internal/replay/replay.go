// Package replay judges recorded requests by the policies of files, and compares each verdict with the verdict of other files, of a running mesh, or of
// the log itself. [Log] reads requests, [Replay] judges them, and a [Report] has the differences.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Judge answers a review. It may be called concurrently.
type Judge func(context.Context, *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error)

// Effects of a policy on a request. An effect in shadow follows effectShadow.
const (
	effectAllowed = "allowed" // also: it is not about the request
	effectDenied  = "denied"
	effectFailed  = "failed"
	effectIgnored = "failed-open"
	effectWarned  = "warned"
	effectChanged = "changed"
	effectShadow  = "shadow: "
)

// refuses are the effects that refuse a request.
func refuses(effect string) bool { return effect == effectDenied || effect == effectFailed }

// verdict is an answer to a request.
type verdict struct {
	denied  bool
	matched bool              // a policy or hook is about the request
	effects map[string]string // by policy or hook, without effectAllowed
	reasons map[string]string // of effects
	object  string            // that is stored
}

// Options are the parts of a replay.
type Options struct {
	// Mesh makes the requests of audit events: it has the defaults of objects.
	Mesh *offline.Mesh
	// Candidate judges by the configuration that is tried.
	Candidate Judge
	// Now judges by the configuration in force, whose hooks stay as they are; nil for the verdicts of the log. A request that is denied in the log is then
	// compared with nothing.
	Now Judge
}

// Replay judges requests. Its methods may be called concurrently.
type Replay struct {
	options Options

	mu     sync.Mutex
	report *collector
}

// New returns a replay that has judged nothing yet.
func New(o Options) *Replay { return &Replay{options: o, report: newCollector()} }

// Add judges a request and adds its differences to the report. The error means that nothing more can be judged.
func (r *Replay) Add(ctx context.Context, e *Entry) error {
	request, err := requestOf(ctx, r.options.Mesh, e)
	if err != nil {
		r.leave(LeftIncomplete)
		return ctx.Err() //nolint:wrapcheck // an interruption
	}
	if request.GetResource().GetResource() == "secrets" && request.GetResource().GetGroup() == "" {
		r.leave(LeftSecret)
		return nil
	}
	then, err := ask(ctx, r.options.Candidate, e.Stage, request)
	if err != nil {
		return r.unanswered(ctx)
	}
	now := verdict{denied: e.Denied}
	if r.options.Now != nil {
		if now, err = ask(ctx, r.options.Now, e.Stage, request); err != nil {
			return r.unanswered(ctx)
		}
		then.keepHooks(now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.add(e, request, now, then, r.options.Now != nil)
	return nil
}

func (r *Replay) unanswered(ctx context.Context) error {
	r.leave(LeftUnanswered)
	return ctx.Err() //nolint:wrapcheck // an interruption
}

func (r *Replay) leave(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.left[reason]++
}

// Judged is the number of requests that were judged.
func (r *Replay) Judged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.judged
}

// Report is the report about all requests of a log.
func (r *Replay) Report(l *Log) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.report(l)
}

// ask judges a request.
func ask(ctx context.Context, judge Judge, stage admissionv1.Stage, request *admissionv1.AdmissionRequest) (verdict, error) {
	answer, err := judge(ctx, &admissionv1.ReviewRequest{Stage: stage, Request: request, Explain: true, AwaitShadows: true})
	if err != nil {
		return verdict{}, err
	}
	v := verdict{
		denied: !answer.GetResponse().GetAllowed(), effects: map[string]string{}, reasons: map[string]string{}, object: string(answer.GetResponse().GetPatch()),
	}
	for _, o := range answer.GetOutcomes() {
		v.matched = v.matched || o.GetOutcome() != "skipped"
		name := o.GetConfiguration()
		if !strings.Contains(name, "/") { // a hook of a webhook configuration
			name += "/" + o.GetHook()
		}
		_, reason := policy.CutSubject(o.GetReason())
		v.add(name, effectOf(o), reason)
	}
	for _, warning := range answer.GetResponse().GetWarnings() {
		name, reason := policy.CutSubject(warning)
		for _, kind := range []string{policy.ShortKind, policy.ValidatingKind} {
			if of := kind + "/" + name; isAsked(answer, of) {
				v.add(of, effectWarned, reason)
			}
		}
	}
	return v, nil
}

// isAsked reports whether a policy has an outcome in an answer.
func isAsked(answer *admissionv1.ReviewResponse, configuration string) bool {
	return slices.ContainsFunc(answer.GetOutcomes(), func(o *admissionv1.HookOutcome) bool { return o.GetConfiguration() == configuration })
}

// add adds an effect. The latest effect of a policy counts, unless an earlier one refuses the request.
func (v *verdict) add(name, effect, reason string) {
	if effect == effectAllowed || refuses(v.effects[name]) {
		return
	}
	v.effects[name], v.reasons[name] = effect, reason
}

// keepHooks gives the candidate, which has policies alone, the effects that hooks have now: they stay.
func (v *verdict) keepHooks(now verdict) {
	policies := []string{policy.ShortKind, policy.ValidatingKind, policy.MutatingKind}
	for name, effect := range now.effects {
		if kind, _, _ := strings.Cut(name, "/"); slices.Contains(policies, kind) || v.effects[name] != "" {
			continue
		}
		v.effects[name], v.reasons[name] = effect, now.reasons[name]
		switch {
		case refuses(effect):
			v.denied = true
		case effect == effectChanged:
			v.object = now.object
		}
	}
}

// effectOf is the effect of a policy or hook by its outcome.
func effectOf(o *admissionv1.HookOutcome) string {
	outcome, shadow := o.GetOutcome(), ""
	if outcome == "shadow" {
		outcome, shadow = o.GetShadow(), effectShadow
	}
	switch outcome {
	case "denied":
		return shadow + effectDenied
	case "patched":
		return shadow + effectChanged
	case "failed":
		return shadow + effectFailed
	case "failed-open":
		return effectIgnored
	}
	return effectAllowed
}

// change is a difference between two verdicts.
type change struct{ policy, now, then, reason string }

// changes are the differences between two verdicts, by policy.
func changes(now, then verdict) (all []change) {
	names := slices.Collect(maps.Keys(then.effects))
	for name := range now.effects {
		if then.effects[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		one := change{name, cmp.Or(now.effects[name], effectAllowed), cmp.Or(then.effects[name], effectAllowed), cmp.Or(then.reasons[name], now.reasons[name])}
		if one.now != one.then {
			all = append(all, one)
		}
	}
	if len(all) == 0 && !now.denied && !then.denied && now.object != then.object {
		all = append(all, change{"", effectChanged, "changed otherwise", "the changes of the object differ"})
	}
	return all
}

// DryRun is a request that changes nothing, for hooks that are called.
func DryRun(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	request = proto.CloneOf(request)
	request.DryRun = proto.Bool(true)
	return request
}

// objectOf names the object of a request, as kind and name.
func objectOf(request *admissionv1.AdmissionRequest) string {
	name := cmp.Or(request.GetName(), "(generated)")
	kind := request.GetKind().GetKind()
	if sub := request.GetSubResource(); sub != "" {
		kind += " " + sub + " of"
	}
	return fmt.Sprintf("%s %s", kind, name)
}

// Explain judges a request once more, and returns the expressions that are false or fail.
func Explain(ctx context.Context, mesh *offline.Mesh, judge Judge, e *Entry) ([]offline.Expression, error) {
	request, err := requestOf(ctx, mesh, e)
	if err != nil {
		return nil, err
	}
	answer, err := judge(ctx, &admissionv1.ReviewRequest{Stage: e.Stage, Request: request, Explain: true, AwaitShadows: true, Expressions: true})
	return offline.ExpressionsOf(answer.GetOutcomes()), err
}

// requestOf is the request of an entry.
func requestOf(ctx context.Context, mesh *offline.Mesh, e *Entry) (*admissionv1.AdmissionRequest, error) {
	if e.Write == nil {
		return e.Request, nil
	}
	return mesh.Request(ctx, e.Write) //nolint:wrapcheck // it names the field
}
