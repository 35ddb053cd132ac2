package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Runner runs suites. It reads the policies of a directory once. It belongs to one goroutine.
type Runner struct {
	// Only selects cases by their names; nil selects all.
	Only *regexp.Regexp
	// Reviews has results tell their reviews.
	Reviews bool
	// Once leaves out the repetition of mutations, and their opposite order.
	Once bool
	// Hosts serve the hooks of case files that name no hosts.
	Hosts []Host
	// StartHosts starts the hosts of a case file; without it hooks are not judged.
	StartHosts StartHosts

	told     map[string]bool // faults of mutating policies
	loaded   map[string]*policies
	coverage coverage
}

// Result is the result of a case.
type Result struct {
	// File and Line are the place of the case.
	File string
	Line int
	// Name is the name of the case.
	Name string
	// Verdict is the verdict of the policies; empty with Err.
	Verdict Verdict
	// Failures are the differences from the expected verdict, each of one line or more. None means that the case has passed.
	Failures []string
	// Err is the reason why the case could not be judged: an error in its fields.
	Err error
	// Review is the AdmissionReview with the request of the case and the answer to it; nil without [Runner.Reviews].
	Review json.RawMessage
	// Took is the time of the case.
	Took time.Duration
}

// Run runs the cases of a suite. The error is about its policies.
func (r *Runner) Run(ctx context.Context, s *Suite) (results []Result, err error) {
	p, err := r.policiesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, c := range s.Cases {
		if r.Only != nil && !r.Only.MatchString(c.Name) {
			continue
		}
		begun := time.Now()
		one := Result{File: s.File, Line: c.line, Name: c.Name}
		if err = r.judge(ctx, s, p, c, &one); err != nil {
			one.Err = &FaultError{s.File, c.line, err.Error()}
		}
		one.Took = time.Since(begun)
		results = append(results, one)
	}
	return results, nil
}

// Close ends the hosts.
func (r *Runner) Close() error {
	var errs []error
	for _, p := range r.loaded {
		if p.hosts != nil {
			errs = append(errs, p.hosts.Close())
		}
	}
	return errors.Join(errs...)
}

// Log is the end of the output of the hosts of a suite.
func (r *Runner) Log(s *Suite) string {
	if p := r.loaded[r.key(s)]; p != nil && p.hosts != nil {
		return p.hosts.Log()
	}
	return ""
}

// hosts are the hosts of a suite; nil without any, or if they cannot be started.
func (r *Runner) hosts(s *Suite) []Host {
	switch {
	case r.StartHosts == nil:
		return nil
	case s.Hosts != nil:
		return s.Hosts
	}
	return r.Hosts
}

// key tells suites apart that do not share policies and hosts.
func (r *Runner) key(s *Suite) string {
	key := strings.Join(s.Policies, "\n")
	switch {
	case s.Policies != nil:
	case IsCaseFile(s.File):
		key = filepath.Dir(s.File)
	default: // it is no policy file either
		key = s.File
	}
	if hosts := r.hosts(s); hosts != nil {
		key += fmt.Sprintf("\n%s\n%q", filepath.Dir(s.File), hosts)
	}
	return key
}

// policiesOf are the policies of a suite, which suites of the same files share.
func (r *Runner) policiesOf(ctx context.Context, s *Suite) (*policies, error) {
	key, hosts := r.key(s), r.hosts(s)
	if p := r.loaded[key]; p != nil {
		return p, nil
	}
	p, err := load(ctx, s, hosts != nil)
	if err != nil {
		return nil, err
	}
	if hosts != nil {
		if err := p.serve(ctx, s, hosts, r.StartHosts); err != nil {
			return nil, err
		}
	}
	if r.loaded == nil {
		r.loaded = map[string]*policies{}
	}
	r.loaded[key] = p
	r.coverage.add(p)
	return p, nil
}

// prepared is a case that can be judged.
type prepared struct {
	*judged

	request *admissionv1.AdmissionRequest
	facts   *offline.Facts
	judge   *offline.Judge // the caller closes it
}

// prepare makes the request of a case. The error is about its fields.
func (s *Suite) prepare(ctx context.Context, p *policies, c *Case) (*prepared, error) {
	by, err := p.judgedBy(c)
	if err != nil {
		return nil, err
	}
	request, err := s.request(ctx, by.mesh, c)
	if err != nil {
		return nil, err
	}
	facts, err := s.facts(c, request)
	if err != nil {
		return nil, err
	}
	judge, err := by.mesh.With(facts)
	return &prepared{by, request, facts, judge}, err
}

// ask is the answer of a judge to a request, after all stages.
func ask(ctx context.Context, judge *offline.Judge, request *admissionv1.AdmissionRequest, o policy.Observer) (review.Answer, error) {
	return judge.Judge(policy.WithObserver(ctx, o), &review.Request{Stage: admissionv1.Stage_STAGE_ADMIT, Admission: request, Explain: true})
}

// judge judges a case, and writes the differences from its expectations into the result.
func (r *Runner) judge(ctx context.Context, s *Suite, p *policies, c *Case, one *Result) error {
	ready, err := s.prepare(ctx, p, c)
	if err != nil {
		return err
	}
	defer ready.judge.Close(ctx)
	o := &outcome{request: ready.request, seen: observer{states: map[string]*state{}, coverage: &r.coverage, policies: p}}
	if o.answer, err = ask(ctx, ready.judge, ready.request, &o.seen); err != nil {
		return err
	}
	r.coverage.skipped(p, o.answer.Outcomes)
	one.Verdict = o.verdict()
	if r.Reviews {
		if one.Review, err = o.review(); err != nil {
			return err
		}
	}
	if one.Failures, err = o.differences(ctx, s, ready.mesh, c); err != nil || r.Once {
		return err
	}
	again, err := r.repeat(ctx, p, ready, &o.answer)
	one.Failures = append(one.Failures, again...)
	return err
}

// outcome is the answer to a case.
type outcome struct {
	request *admissionv1.AdmissionRequest
	answer  review.Answer
	seen    observer
}

// review is the AdmissionReview with the request and the answer.
func (o *outcome) review() (json.RawMessage, error) {
	asked, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: o.request})
	if err != nil {
		return nil, err
	}
	answered, err := conversion.EncodeReview(nil, &admissionv1.ReviewResponse{Response: o.answer.Response, ApiVersion: reviewVersion})
	if err != nil {
		return nil, err
	}
	head, tail := asked.Pieces(o.request.GetUid())
	review := map[string]json.RawMessage{}
	for _, half := range [][]byte{slices.Concat(head, slices.Concat(tail...)), answered} {
		if err := json.Unmarshal(half, &review); err != nil {
			return nil, err
		}
	}
	return json.Marshal(review)
}

// reviewVersion is the version of reviews that results tell.
const reviewVersion = "admission.k8s.io/v1"

// verdict is the effect of the policies.
func (o *outcome) verdict() Verdict {
	var matched, isFalse, failed bool
	for _, s := range o.seen.states {
		isFalse, failed = isFalse || s.isFalse, failed || s.failed
	}
	for _, h := range o.answer.Outcomes {
		switch h.GetOutcome() {
		case "allowed", "patched":
			matched = true
		case "denied":
			isFalse = true
		case "failed":
			failed = failed || !strings.Contains(h.GetConfiguration(), "/") // a policy, by its kind and name, without its param denies
		case "failed-open":
			failed = true
		}
	}
	switch allowed := o.answer.Response.GetAllowed(); {
	case !allowed && (isFalse || !failed):
		return Denied
	case failed:
		return Failed
	case matched:
		return Allowed
	}
	return Unmatched
}

// message is the message of a denial or of a failure.
func (o *outcome) message() string {
	if said := o.answer.Response.GetStatus().GetMessage(); said != "" {
		return said
	}
	return o.reasons("failed", "failed-open")
}

// reasons are the reasons of policies with an outcome.
func (o *outcome) reasons(outcomes ...string) string {
	var all []string
	for _, h := range o.answer.Outcomes {
		for _, wanted := range outcomes {
			if h.GetOutcome() == wanted && h.GetReason() != "" {
				all = append(all, h.GetConfiguration()+": "+h.GetReason())
			}
		}
	}
	if more := len(all) - maxReasons; more > 0 {
		all = append(all[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// maxReasons bounds the reasons in the description of a verdict.
const maxReasons = 3

// describe is the verdict for people.
func (o *outcome) describe(v Verdict) string {
	reason := ""
	switch v {
	case Denied, Failed:
		reason = o.message()
	case Unmatched:
		reason = o.reasons("skipped")
	case Allowed:
	}
	if reason == "" {
		return string(v)
	}
	return fmt.Sprintf("%s (%s)", v, reason)
}

// state is the part of the evaluation of a policy that is not in its outcome.
type state struct{ isFalse, failed bool }

// observer follows the evaluation of the policies of one review.
type observer struct {
	states   map[string]*state // by policy
	coverage *coverage
	policies *policies
}

var _ policy.Observer = (*observer)(nil)

// Observe implements [policy.Observer].
func (o *observer) Observe(of policy.Observation) {
	id := of.Policy.ID()
	s := o.states[id]
	if s == nil {
		s = &state{}
		o.states[id] = s
	}
	isCondition := strings.HasPrefix(of.Field, ".matchConditions")
	switch of.Event {
	case policy.Begun:
		s.isFalse, s.failed = false, false
	case policy.False:
		s.isFalse = s.isFalse || !isCondition
	case policy.Failed:
		s.failed = true
	case policy.Bound, policy.Unbound, policy.True, policy.Changed, policy.Unchanged, policy.Spent, policy.Ended:
	}
	o.coverage.observe(o.policies, id, of)
}
