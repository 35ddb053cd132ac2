package dispatcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// script is the behaviour of a hook: the first step whose condition holds. Without such a step the hook allows.
type script []step

// step is the behaviour of a hook for objects that have a field.
type step struct {
	has string // a path with dots; empty holds for all
	act act
}

// String is the step for a person.
func (s step) String() string {
	if s.has == "" {
		return s.act.name
	}
	return fmt.Sprintf("if it has %s: %s", s.has, s.act.name)
}

// act is an answer, which may depend on the object. object is nil when the request has none.
type act struct {
	name string
	say  func(object map[string]any) oracle.Answer
}

// always is an act that does not look at the object.
func always(name string, a oracle.Answer) act {
	return act{name, func(map[string]any) oracle.Answer { return a }}
}

// answer plays the script.
func (s script) answer(object map[string]any) oracle.Answer {
	for _, step := range s {
		if step.has == "" {
			return step.act.say(object)
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(object, strings.Split(step.has, ".")...); found {
			return step.act.say(object)
		}
	}
	return oracle.Allow()
}

// edit changes the answers of hooks, to ask for the outcome with other answers.
type edit func(key string, a oracle.Answer) oracle.Answer

// call is one call of a hook.
type call struct {
	Key     string
	Object  string // as canonical JSON
	Rest    string // of the request
	HTTP    oracle.RequestInfo
	Attempt int // how often the same call was made before: by the uid, of which each call has one
}

// performance is the scripts of one experiment played once.
type performance struct {
	scripts map[string]script
	edits   []edit
	https   map[string]bool          // by key
	hurried bool                     // the time of a call depends on how long others took
	limits  map[string]time.Duration // the timeouts of HTTPS hooks whose call nothing has delayed, by key
	begun   time.Time
	asked   map[types.UID]int

	mu    sync.Mutex
	calls []call
}

// newPerformance is an experiment before its first call.
func newPerformance(e *experiment, edits ...edit) *performance {
	p := &performance{scripts: e.Scripts, edits: edits, https: map[string]bool{}, asked: map[types.UID]int{}, hurried: e.Deadline > 0,
		limits: map[string]time.Duration{}, begun: time.Now()}
	for _, h := range e.world.hooks(e.Stage) {
		p.https[h.key], p.limits[h.key] = h.https, time.Duration(ptr.Deref(h.TimeoutSeconds, 10))*time.Second
	}
	return p
}

// play answers one call, and takes note of it. How it came by HTTPS counts only for hooks that both call so.
func (p *performance) play(key string, r *k8sadmissionv1.AdmissionRequest, came oracle.RequestInfo) oracle.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := newCall(key, r)
	if p.https[key] {
		c.HTTP, c.Attempt = came, p.asked[r.UID]
		p.asked[r.UID]++
		c.HTTP.Timeout = undelayed(c.HTTP.Timeout, p.limits[key], time.Since(p.begun))
	}
	if p.hurried || c.Attempt > 0 { // kube-apiserver repeats the first timeout, and Portcullis sends the time left
		c.HTTP.Timeout = ""
	}
	p.calls = append(p.calls, c)
	var object map[string]any
	_ = utiljson.Unmarshal(r.Object.Raw, &object) // an unreadable object has no fields
	answer := p.scripts[key].answer(object)
	for _, e := range p.edits {
		answer = e(key, answer)
	}
	return answer
}

// undelayed is the timeout that a hook would have got without delay. A busy machine may delay a call by up to elapsed. Each side then sends the time
// left, kube-apiserver rounded up to seconds and Portcullis rounded down. A timeout that no such delay explains stays as it is.
func undelayed(told string, limit, elapsed time.Duration) string {
	got, err := time.ParseDuration(told)
	if err != nil || got > limit || got <= limit-elapsed-time.Second {
		return told
	}
	return limit.String()
}

// newCall records a call in the form that the hook sees.
func newCall(key string, r *k8sadmissionv1.AdmissionRequest) call {
	rest := *r
	rest.UID, rest.Object.Raw = "", nil
	return call{Key: key, Object: canonicalJSON(r.Object.Raw), Rest: canonical(rest)}
}

func (p *performance) recorded() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.calls...)
}

// errScripted is the failure of a hook without a verdict.
var errScripted = errors.New("scripted failure")

// verdict is the answer as a hook of ours gives it: an error, where an HTTP caller would see a failed call.
func verdict(ctx context.Context, a oracle.Answer) (*admissionv1.AdmissionResponse, error) {
	if a.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if broken(a) {
		return nil, errScripted
	}
	r := a.Response
	v := &admissionv1.AdmissionResponse{
		Allowed: r.Allowed, Status: statusMessage(r.Result), Patch: r.Patch, Warnings: r.Warnings, AuditAnnotations: r.AuditAnnotations,
	}
	if r.PatchType != nil {
		v.PatchType = string(*r.PatchType)
	}
	return v, nil
}

// broken reports whether an answer carries no AdmissionResponse at all.
func broken(a oracle.Answer) bool {
	if a.Drop || a.Body != nil || a.Code >= http.StatusMultipleChoices || a.Response == nil {
		return true
	}
	if a.Edit == nil {
		return false
	}
	review := k8sadmissionv1.AdmissionReview{Response: a.Response.DeepCopy()}
	review.SetGroupVersionKind(k8sadmissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	review.Response.UID = "u"
	want := review.GroupVersionKind()
	a.Edit(&review)
	return review.Response == nil || review.Response.UID != "u" || review.GroupVersionKind() != want
}

func statusMessage(s *metav1.Status) *admissionv1.Status {
	if s == nil {
		return nil
	}
	m := &admissionv1.Status{Status: s.Status, Message: s.Message, Reason: string(s.Reason), Code: s.Code}
	if d := s.Details; d != nil {
		m.Details = &admissionv1.StatusDetails{
			Name: d.Name, Group: d.Group, Kind: d.Kind, Uid: string(d.UID), RetryAfterSeconds: d.RetryAfterSeconds,
		}
		for _, c := range d.Causes {
			m.Details.Causes = append(m.Details.Causes, &admissionv1.StatusCause{Reason: string(c.Type), Message: c.Message, Field: c.Field})
		}
	}
	return m
}

// sayable reports whether users of the SDK can give an answer: it sees to it that verdicts are well-formed, and has
// defaults of its own for denials.
func sayable(a oracle.Answer) bool {
	r := a.Response
	switch {
	case broken(a):
		return true
	case r.Allowed && r.Patch == nil:
		return r.PatchType == nil
	case r.Allowed:
		return r.PatchType != nil && *r.PatchType == k8sadmissionv1.PatchTypeJSONPatch && json.Valid(r.Patch) && bytes.HasPrefix(bytes.TrimSpace(r.Patch), []byte("["))
	case r.Patch != nil || r.PatchType != nil || r.Result == nil:
		return false
	}
	d := r.Result.Details
	return r.Result.Code >= 400 && r.Result.Code < 600 && r.Result.Reason != "" && (d == nil || (d.Name == "" && d.RetryAfterSeconds == 0 && len(d.Causes) > 0))
}

// respond is verdict for hooks that are written with the SDK.
func respond(ctx context.Context, a oracle.Answer) (*hostsdk.Response, error) {
	v, err := verdict(ctx, a)
	if err != nil {
		return nil, err
	}
	s := v.GetStatus()
	r := &hostsdk.Response{
		Allowed: v.GetAllowed(), Patch: v.GetPatch(), Warnings: v.GetWarnings(), Audit: v.GetAuditAnnotations(),
		Message: s.GetMessage(), Code: s.GetCode(), Reason: s.GetReason(),
	}
	for _, c := range s.GetDetails().GetCauses() {
		r.Causes = append(r.Causes, hostsdk.Cause{Field: c.GetField(), Message: c.GetMessage(), Reason: c.GetReason()})
	}
	return r, nil
}
