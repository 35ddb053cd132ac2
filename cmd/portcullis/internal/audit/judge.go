package audit

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Result is the result of a policy, or of a hook, for an object.
type Result string

// The results, the worst last.
const (
	// Passed: the policy would admit the object as it is.
	Passed Result = "passed"
	// Changed: it would change the object.
	Changed Result = "changed"
	// Warned: it would admit the object with a warning, or with an audit annotation.
	Warned Result = "warned"
	// Shadow: it would deny the object, and is in shadow.
	Shadow Result = "shadow"
	// Denied: it would deny the object.
	Denied Result = "denied"
	// Failed: it has no verdict.
	Failed Result = "error"
)

// results are all results in their order.
func results() []Result { return []Result{Passed, Changed, Warned, Shadow, Denied, Failed} }

// Verdict is the result of one policy for one object.
type Verdict struct {
	// Policy is KIND/NAME of a policy, or the name of a hook.
	Policy string
	// Result is the result.
	Result Result
	// Message says why; empty for objects that pass.
	Message string
}

// Judge judges objects. It may be called concurrently.
type Judge interface {
	// Judge returns the verdicts of the policies that are about a request. An error that is a *StopError ends the audit; any other is about this object.
	Judge(ctx context.Context, r *admissionv1.AdmissionRequest) ([]Verdict, error)
}

// StopError is an error after which no object can be judged.
type StopError struct{ Err error }

// Error is the text of Err.
func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StopError) Unwrap() error { return e.Err }

// Offline judges by the policies of files, in this process.
type Offline struct{ Judges *offline.Judge }

var _ Judge = Offline{}

// Judge implements [Judge].
func (o Offline) Judge(ctx context.Context, r *admissionv1.AdmissionRequest) ([]Verdict, error) {
	seen := observer{isFalse: map[string]bool{}}
	answer, err := o.Judges.Judge(policy.WithObserver(ctx, &seen), &review.Request{
		Stage: admissionv1.Stage_STAGE_ADMIT, Admission: r, Explain: true, AwaitShadows: true,
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it has all words
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	verdicts := VerdictsOf(answer.Outcomes)
	for i, v := range verdicts {
		verdicts[i] = seen.corrected(v, answer.Response.GetWarnings())
	}
	return verdicts, nil
}

// VerdictsOf are the verdicts of the hooks that were asked, one for each: of a hook that was asked twice, the worse.
func VerdictsOf(outcomes []*admissionv1.HookOutcome) []Verdict {
	var all []Verdict
	for _, o := range outcomes {
		v := Verdict{Policy: o.GetHook()}
		_, v.Message = policy.CutSubject(o.GetReason())
		if strings.Contains(o.GetConfiguration(), "/") {
			v.Policy = o.GetConfiguration() // of a policy
		}
		switch word := o.GetOutcome(); {
		case word == "shadow" && o.GetShadow() == "denied":
			v.Result = Shadow
		case word == "shadow" && (o.GetShadow() == "allowed" || o.GetShadow() == "patched"):
			v.Result, v.Message = Passed, ""
		case word == "shadow" && o.GetShadow() == "skipped", word == "skipped":
			continue
		case word == string(review.OutcomeAllowed):
			v.Result, v.Message = Passed, ""
		case word == "patched":
			v.Result, v.Message = Changed, ""
		case word == string(review.OutcomeDenied):
			v.Result = Denied
		default:
			v.Result = Failed
		}
		all = append(all, v)
	}
	return Merged(all, nil)
}

// Merged are verdicts with more of them: of several by one policy, the worst.
func Merged(verdicts, more []Verdict) (all []Verdict) {
	at := map[string]int{}
	for _, v := range slices.Concat(verdicts, more) {
		i, again := at[v.Policy]
		switch {
		case !again:
			at[v.Policy] = len(all)
			all = append(all, v)
		case v.Result.worse(all[i].Result):
			all[i] = v
		}
	}
	return all
}

// worse reports whether a result is further behind in results.
func (r Result) worse(than Result) bool {
	return slices.Index(results(), r) > slices.Index(results(), than)
}

// observer follows the evaluation of the policies of one review. Policies in shadow are evaluated in goroutines of their own.
type observer struct {
	mu      sync.Mutex
	isFalse map[string]bool // a rule of the policy is false
}

var _ policy.Observer = (*observer)(nil)

// Observe implements [policy.Observer].
func (o *observer) Observe(of policy.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := of.Policy.ID()
	switch of.Event {
	case policy.Begun:
		delete(o.isFalse, id)
	case policy.False:
		o.isFalse[id] = o.isFalse[id] || !strings.HasPrefix(of.Field, ".matchConditions")
	case policy.Bound, policy.Unbound, policy.True, policy.Failed, policy.Changed, policy.Unchanged, policy.Spent, policy.Ended:
	}
}

// corrected is a verdict with the effect that the observer knows: a rule that is false may only warn.
func (o *observer) corrected(v Verdict, warnings []string) Verdict {
	if v.Result != Passed || !o.isFalse[v.Policy] {
		return v
	}
	v.Result = Warned
	_, name, _ := strings.Cut(v.Policy, "/")
	for _, w := range warnings {
		if of, said := policy.CutSubject(w); of == name {
			v.Message = said
			break
		}
	}
	return v
}
