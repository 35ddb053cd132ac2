package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// outcome is how a request ended, in words that kube-apiserver and Portcullis share.
type outcome struct {
	Allowed bool
	Status  status
	// Object is the final object as canonical JSON; empty when there is none or the request was refused.
	Object  string
	Patched bool // not compared: by the object
	// Warnings are sorted.
	Warnings []string
	// Audit is the annotations of hooks, by "<hook>.<key>".
	Audit map[string]string
	// FailedOpen are the hooks that failed and were skipped, by name, sorted.
	FailedOpen []string
	// Mutated are the calls whose patches changed the object, if the experiment explains: round, configuration, hook.
	Mutated []string
	// Calls are the calls of the hooks: in order if they mutate, else sorted.
	Calls []call
}

// status is the error that the client of a refused request gets.
type status struct {
	Code    int32
	Reason  string
	Message string
	Details string
}

// rewording says how Portcullis names things: it is a mesh of hooks behind one webhook of the API server, which puts its
// own name in front.
type rewording struct {
	pattern *regexp.Regexp
	shared  string
}

// rewordings are the one place that maps messages of both to words that they share. A message without a pattern is compared as it is.
var rewordings = []rewording{
	{regexp.MustCompile(`^(?:admission webhook|hook) ("[^"]*") denied the request`), `$1 denied the request`},
	{regexp.MustCompile(`(?s)^(?:Internal error occurred: )?failed calling webhook ("[^"]*"): .*$`), `failed calling $1`},
	{regexp.MustCompile(`^(?:admission webhook|hook) ("[^"]*") does not support dry run(?: \(sideEffects: \w+\))?$`), `$1 does not support dry run`},
	{regexp.MustCompile(`^(?:Internal error occurred: admission webhook|hook) ("[^"]*") attempted to modify the object, which is not supported for this operation$`), `$1 patched no object`},
	{regexp.MustCompile(`(?s)^patch of hook "[^"]*" does not apply: .*$`), `a patch does not apply`},
	{regexp.MustCompile(`^matching hook "[^"]*": `), ``},
}

// sharedMessage is a message in shared words.
func sharedMessage(message string) string {
	for _, r := range rewordings {
		if r.pattern.MatchString(message) {
			return r.pattern.ReplaceAllString(message, r.shared)
		}
	}
	return message
}

// internalError is the reason of refusals that are nobody's verdict. Their details repeat the message.
const internalError = "InternalError"

func newStatus(code int32, reason, message string, details *metav1.StatusDetails) status {
	s := status{Code: code, Reason: reason, Message: sharedMessage(message)}
	if reason != internalError && details != nil {
		s.Details = canonical(details)
	}
	return s
}

// The annotations that the plugins of kube-apiserver make themselves.
const (
	patchAnnotation    = "patch.webhook.admission.k8s.io/"
	mutationAnnotation = "mutation.webhook.admission.k8s.io/"
	failedOpen         = "failed-open."
	mutated            = "mutation." // of ours
)

// fromKubernetes is the outcome of the oracle, in shared words.
func fromKubernetes(e *experiment, o oracle.Outcome, calls []call) outcome {
	out := outcome{Allowed: o.Allowed, Object: canonicalJSON(o.FinalObject), Warnings: heard(o.Warnings), Audit: map[string]string{}}
	if !o.Allowed {
		out.Status = newStatus(o.Code, string(o.Reason), inapplicable(o.Message), o.Details)
	}
	for key, value := range o.Audit {
		switch {
		case strings.HasPrefix(key, failedOpen):
			out.FailedOpen = append(out.FailedOpen, value)
		case strings.HasPrefix(key, patchAnnotation): // values of patches stay out of our annotations
		case strings.HasPrefix(key, mutationAnnotation):
			out.Mutated = append(out.Mutated, mutation(strings.TrimPrefix(key, mutationAnnotation), value)...)
		default:
			out.Audit[strings.Replace(key, "/", ".", 1)] = value
		}
	}
	return out.settle(e, calls)
}

// patchErrors are the beginnings of kube-apiserver's messages about patches that do not apply, or whose result is no object. Such messages name no
// hook.
var patchErrors = regexp.MustCompile(`(?s)^Internal error occurred: (?:` + strings.Join([]string{
	`(add|remove|replace|move|copy|test)(ing)? `, `error in (add|remove|replace|move|copy|test) for path`, `testing (path|value)`, `jsonpatch `,
	`Unexpected kind`, `unexpected GroupVersion string`, `unexpected kind`, `couldn't get version/kind`, `Object 'Kind' is missing`, `json: cannot unmarshal`, `Unable to access`,
	`parsing time`, `Invalid index`, `Missing operation`, `Unable to copy`, `Accumulated size`,
}, "|") + `).*$`)

// inapplicable is the message of a patch that does not apply as Portcullis begins it, and every other as it is.
func inapplicable(message string) string {
	if patchErrors.MatchString(message) {
		return `a patch does not apply`
	}
	return message
}

// mutation reads the annotation of a call that changed the object; place is the call's place in the review.
func mutation(place, value string) []string {
	var m mutating.MutationAuditAnnotation
	if err := json.Unmarshal([]byte(value), &m); err != nil {
		return []string{err.Error()}
	}
	if !m.Mutated {
		return nil
	}
	round, _, _ := strings.Cut(strings.TrimPrefix(place, "round_"), "_index_")
	return []string{fmt.Sprintf("round %s: %s/%s", round, m.Configuration, m.Webhook)}
}

// fromPortcullis is an answer in shared words.
func fromPortcullis(e *experiment, object string, a review.Answer, calls []call) outcome {
	r := a.Response
	out := outcome{Allowed: r.GetAllowed(), Audit: map[string]string{}}
	if s := r.GetStatus(); !out.Allowed {
		out.Status = newStatus(s.GetCode(), s.GetReason(), s.GetMessage(), detailsOf(s))
	} else {
		out.Object, out.Patched = object, len(r.GetPatch()) > 0
	}
	out.Warnings = heard(r.GetWarnings())
	for key, value := range r.GetAuditAnnotations() {
		switch {
		case strings.HasPrefix(key, failedOpen):
			out.FailedOpen = append(out.FailedOpen, webhookIn(value))
		case strings.HasPrefix(key, mutated):
			out.Mutated = append(out.Mutated, mutation(strings.TrimPrefix(key, mutated), value)...)
		case key == "revision", key == review.AuditOutcome, strings.HasPrefix(key, "patch."): // of ours alone
		case value == droppedUpstream: // we mend keys that the API server does not accept
		default:
			out.Audit[key] = value
		}
	}
	out = out.settle(e, calls)
	if told := explained(a); e.Explain && !slices.Equal(told, out.Mutated) {
		out.Mutated = append(out.Mutated, fmt.Sprintf("explained as %v", told))
	}
	return out
}

// heard are the warnings that the API server lets through to the client, sorted.
func heard(said []string) []string {
	if len(said) == 0 {
		return nil
	}
	w := httptest.NewRecorder()
	filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, text := range said {
			warning.AddWarning(r.Context(), "", text)
		}
	})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	headers, _ := utilnet.ParseWarningHeaders(w.Header()["Warning"])
	var texts []string
	for _, h := range headers {
		texts = append(texts, h.Text)
	}
	slices.Sort(texts)
	return texts
}

// explained are the calls that changed the object as the explanation has them.
func explained(a review.Answer) []string {
	var told []string
	for _, o := range a.Outcomes {
		if o.GetOutcome() == "patched" {
			told = append(told, fmt.Sprintf("round %d: %s/%s", o.GetRound(), o.GetConfiguration(), o.GetHook()))
		}
	}
	slices.Sort(told)
	return told
}

// webhookIn is the hook that an annotation of ours names.
func webhookIn(value string) string {
	var a struct {
		Webhook string `json:"webhook"`
	}
	if err := json.Unmarshal([]byte(value), &a); err != nil {
		return err.Error()
	}
	return a.Webhook
}

// detailsOf are details in the types of Kubernetes.
func detailsOf(s *admissionv1.Status) *metav1.StatusDetails {
	d := s.GetDetails()
	if d == nil {
		return nil
	}
	all := &metav1.StatusDetails{
		Name: d.GetName(), Group: d.GetGroup(), Kind: d.GetKind(), UID: types.UID(d.GetUid()), RetryAfterSeconds: d.GetRetryAfterSeconds(),
	}
	for _, c := range d.GetCauses() {
		all.Causes = append(all.Causes, metav1.StatusCause{Type: metav1.CauseType(c.GetReason()), Message: c.GetMessage(), Field: c.GetField()})
	}
	return all
}

// settle makes outcomes comparable whose order means nothing.
func (o outcome) settle(e *experiment, calls []call) outcome {
	o.Calls = calls
	if e.Stage == admissionv1.Stage_STAGE_VALIDATE {
		slices.SortStableFunc(o.Calls, func(a, b call) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.Sort(o.FailedOpen)
	o.FailedOpen = slices.Compact(o.FailedOpen)
	slices.Sort(o.Mutated)
	return o
}

// reinvoked reports whether a hook was called twice.
func (o outcome) reinvoked() bool {
	seen := map[string]bool{}
	for _, c := range o.Calls {
		if seen[c.Key] {
			return true
		}
		seen[c.Key] = true
	}
	return false
}

// String is the outcome for a person.
func (o outcome) String() string {
	called := make([]string, 0, len(o.Calls))
	for _, c := range o.Calls {
		called = append(called, c.Key)
	}
	return fmt.Sprintf("allowed %t %+v\n  object %s\n  called %v\n  failed open %v, mutated %v, warnings %q, audit %v",
		o.Allowed, o.Status, o.Object, called, o.FailedOpen, o.Mutated, o.Warnings, slices.Sorted(maps.Keys(o.Audit)))
}

// differ is how two outcomes differ; empty if they do not.
func differ(want, got outcome) string {
	want.Patched, got.Patched = false, false
	return cmp.Diff(want, got, cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore()),
		cmp.FilterValues(func(a, b []call) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore()))
}

// canonical is a value as JSON without zero values, with sorted names.
func canonical(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return canonicalJSON(raw)
}

// canonicalJSON is a document as Kubernetes would write it again: names sorted, whole fractions as integers.
func canonicalJSON(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return fmt.Sprintf("%v: %s", err, raw)
	}
	again, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(again)
}
