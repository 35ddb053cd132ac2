package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	policies "github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// The differential test: random policies, bindings and requests, once through kube-apiserver's own dispatcher of policies (internal/oracle) and once
// through the mesh's. Every outcome has to be the same, or to be explained by a deviation that docs/deviations.md lists.
//
//	PORTCULLIS_CASES=100000 PORTCULLIS_SEED=7 go test ./dispatcher/policy -run TestDifferential
//
// Each set of policies has a seed of its own and sees a number of requests. A failure names the seed, and prints the smallest case that still fails.

const (
	requestsPerWorld = 25
	// enoughCases is from how many cases on each kind of case has to have occurred.
	enoughCases = 2000
	// maxShrinks bounds how many smaller cases are tried for one report.
	maxShrinks = 400
)

func TestDifferential(t *testing.T) {
	cases := citest.Cases(enoughCases, 2*enoughCases, 50*enoughCases)
	l, total := newLaboratory(t), tally{}
	for i := range (cases + requestsPerWorld - 1) / requestsPerWorld {
		seed := citest.Seed() + uint64(i)
		r := newRandom(seed)
		w := l.world(r.policies())
		for range requestsPerWorld {
			c := experiment{world: w, request: r.request()}
			j := l.judge(c)
			if j.difference != "" {
				c, j = l.shrink(c, j)
				t.Fatalf("seed %d\n%s\ndifference (-kube-apiserver +portcullis):\n%s\nkube-apiserver: %+v\nportcullis: %+v", seed, c, j.difference, j.want, j.got)
			}
			total.add(c, j)
		}
	}
	t.Log(total)
	for _, event := range interesting() {
		if cases >= enoughCases && total[event] == 0 {
			t.Errorf("no case of %q: the test does not see enough", event)
		}
	}
}

// laboratory has both sides.
type laboratory struct {
	testing.TB

	oracle  *oracle.Oracle
	plugin  *oracle.Policies
	known   cluster
	compile *policies.Compiler
}

func newLaboratory(t testing.TB) *laboratory {
	t.Helper()
	o := newOracle(t)
	return &laboratory{TB: t, oracle: o, plugin: o.Policies(permissions()), known: newCluster(t), compile: policies.NewCompiler()}
}

// world is a set of policies on both sides.
type world struct {
	policies   []bound
	hooks      []validating.PolicyHook
	snapshot   *match.Snapshot
	dispatcher *dispatcher.Dispatcher
	variants   map[string]validating.PolicyHook // by withMessages
}

// experiment is a request in a world.
type experiment struct {
	*world

	request *admissionv1.AdmissionRequest
}

// String is the case for a person who has to understand it.
func (c experiment) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "request %s\n", c.request)
	for _, p := range c.policies {
		fmt.Fprintf(&out, "policy %s\n", brief(p.Name, p.Spec))
		for _, b := range p.bindings {
			fmt.Fprintf(&out, "    binding %s\n", brief(b.Name, b.Spec))
		}
	}
	return out.String()
}

func brief(name string, spec any) string {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return name + " " + strings.ReplaceAll(string(raw), strings.Repeat("x", 5000), "x...")
}

// world compiles policies, which are completed as the API server does.
func (l *laboratory) world(all []bound) *world {
	l.Helper()
	w := &world{policies: all, variants: map[string]validating.PolicyHook{}}
	in, known := match.Input{Revision: "r1"}, match.Cluster(l.known)
	for _, p := range all {
		legacyscheme.Scheme.Default(p.ValidatingAdmissionPolicy)
		for _, b := range p.bindings {
			legacyscheme.Scheme.Default(b)
		}
		w.hooks = append(w.hooks, compilePolicy(p.ValidatingAdmissionPolicy, p.bindings))
		definition := l.compile.Compile(p.ValidatingAdmissionPolicy)
		if p.configured {
			definition, known = definition.WithParams(configured(l, p.Spec.ParamKind)), unasked{l.known}
		}
		in.Objects = append(in.Objects, match.Object{Policy: definition.Bind(p.bindings)})
	}
	w.snapshot, _ = match.Compile(in) // findings are expected: not every selector can be parsed
	source := static{known: known, snapshot: w.snapshot}
	var err error
	if w.dispatcher, err = dispatcher.New(dispatcher.Options{Snapshots: source, Clusters: source, Streams: noStreams{}}); err != nil {
		l.Fatal(err)
	}
	return w
}

// compilePolicy is a policy as kube-apiserver has it, with the informer of its params.
func compilePolicy(p *validating.Policy, bindings []*validating.PolicyBinding) validating.PolicyHook {
	hook := oracle.CompilePolicy(p, bindings...)
	hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = informerOf(p.Spec.ParamKind)
	return hook
}

// outcome is an answer to the client, and the annotations of the audit log.
type outcome struct {
	Allowed     bool
	Code        int32
	Reason      string
	Group, Kind string
	Name        string
	First       string // denial
	Warnings    []string
	Audit       map[string]string
	Failures    []failure

	long bool // warnings have been cut, or annotations left out
}

// failure is an item of the annotation about failed validations.
type failure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// judgement is the comparison of both.
type judgement struct {
	want, got  outcome
	denials    []string // of the mesh
	costly     bool     // the mesh has left off since all policies cost too much together
	events     []string
	difference string
	asked      asked
}

// asked is the way in which kube-apiserver is asked.
type asked struct {
	plugin *oracle.Policies
	hooks  []validating.PolicyHook
}

// judge runs a case through both.
func (l *laboratory) judge(c experiment) (j judgement) {
	l.Helper()
	j.got = l.portcullis(c, &j)
	if j.ask(l, c, asked{l.plugin, c.hooks}); j.difference != "" {
		l.explain(c, &j)
	}
	return j
}

// ask asks kube-apiserver and compares.
func (j *judgement) ask(l *laboratory, c experiment, by asked) {
	l.Helper()
	j.asked, j.want = by, l.kubernetes(c, by)
	want, got := j.want, j.got
	if j.costly {
		j.events, j.difference = append(j.events, "P6: cost of all policies"), ""
		return
	}
	if want.long {
		j.events, want.Warnings, got.Warnings = append(j.events, "A1: long warnings"), nil, nil
	}
	if got.long {
		j.events, want.Audit, got.Audit, want.Failures, got.Failures = append(j.events, "A3: long annotations"), nil, nil, nil, nil
	}
	if want.Code == http.StatusNotFound && j.missesNamespace() {
		j.events, j.difference = append(j.events, "P5: a missing namespace"), "" // policies that do not read it have their say first
		return
	}
	if j.difference = cmp.Diff(want, got, cmpopts.IgnoreUnexported(outcome{})); j.difference == "" && !got.Allowed {
		j.difference = l.compareDenials(c, j)
	}
}

// missesNamespace reports whether a denial of the mesh is that the namespace does not exist.
func (j *judgement) missesNamespace() bool {
	return slices.Contains(append(j.denials, j.got.First), `namespaces "missing" not found`)
}

// kubernetes is the outcome of kube-apiserver.
func (l *laboratory) kubernetes(c experiment, by asked) outcome {
	l.Helper()
	j, err := by.plugin.Judge(l.Context(), by.hooks, c.request)
	if err != nil {
		l.Fatal(err)
	}
	o := outcome{Allowed: j.Allowed, Code: j.Code, Reason: string(j.Reason), First: j.Message, Audit: map[string]string{}}
	if d := j.Details; d != nil {
		o.Group, o.Kind, o.Name = d.Group, d.Kind, d.Name
		if len(d.Causes) > 0 {
			o.First = d.Causes[0].Message
		}
		if message := fmt.Sprintf(" is forbidden: %s", o.First); len(d.Causes) > 0 && !strings.HasSuffix(j.Message, message) {
			l.Errorf("message %q, cause %q", j.Message, o.First)
		}
	}
	runes := 0
	for _, text := range j.Warnings {
		runes += utf8.RuneCountInString(text)
	}
	o.Warnings = l.shown(j.Warnings)
	for key, value := range j.Audit {
		if key != oracle.AuditFailure {
			o.Audit[strings.ReplaceAll(key, "/", ".")] = value
		}
	}
	for _, raw := range j.Failures {
		o.Failures = append(o.Failures, failuresIn(l, raw)...)
	}
	o.long = runes > 4096
	return o
}

func failuresIn(t testing.TB, raw string) (all []failure) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// shown are the warnings that the API server sends to the client.
func (l *laboratory) shown(raw []string) (all []string) {
	l.Helper()
	w := httptest.NewRecorder()
	filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, text := range raw {
			warning.AddWarning(r.Context(), "", text)
		}
	})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	headers, errs := utilnet.ParseWarningHeaders(w.Header().Values("Warning"))
	if len(errs) > 0 {
		l.Fatal(errs)
	}
	for _, h := range headers {
		all = append(all, h.Text)
	}
	return all
}

// portcullis is the outcome of the mesh, without its own notices.
func (l *laboratory) portcullis(c experiment, j *judgement) outcome {
	l.Helper()
	answer, err := c.dispatcher.Review(l.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Explain: true, Admission: sent(l, l.oracle, c.request)})
	if err != nil {
		l.Fatal(err)
	}
	j.costly = strings.Contains(fmt.Sprint(answer.Outcomes, answer.Response), " cost too much together")
	a, s := answer.Response, answer.Response.GetStatus()
	o := outcome{
		Allowed: a.GetAllowed(), Code: s.GetCode(), Reason: s.GetReason(), First: s.GetMessage(), Audit: map[string]string{},
		Group: s.GetDetails().GetGroup(), Kind: s.GetDetails().GetKind(), Name: s.GetDetails().GetName(),
	}
	for _, cause := range s.GetDetails().GetCauses() {
		j.denials = append(j.denials, cause.GetMessage())
	}
	if len(j.denials) > 0 {
		o.First = j.denials[0]
		if _, whole, _ := strings.Cut(s.GetMessage(), " policies denied the request: "); !strings.HasPrefix(s.GetMessage(), o.First) &&
			!strings.HasPrefix(whole, o.First[:min(len(o.First), 1000)]) {
			l.Errorf("message %q, cause %q", s.GetMessage(), o.First)
		}
	}
	for _, text := range a.GetWarnings() {
		if strings.HasPrefix(text, `policy "`) {
			j.events = append(j.events, "P3: failed open")
		} else {
			o.Warnings = append(o.Warnings, text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.GetAuditAnnotations())) {
		switch value := a.GetAuditAnnotations()[key]; {
		case key == "omitted":
			o.long = true
		case strings.HasSuffix(key, "."+policies.AuditFailure):
			o.Failures = append(o.Failures, failuresIn(l, value)...)
		case key == "revision", key == "outcome", strings.HasPrefix(key, "failed-open."):
		default:
			o.Audit[key] = value
		}
	}
	return o
}

// interesting are the events that a run of enough cases has to see.
func interesting() []string {
	return []string{
		"allowed", "denied with 403", "denied with 401", "denied with 413", "denied with 422", "warned", "annotated", "audited", "two policies deny",
		"P1: several denials", "P2: a message that is not needed", "P5: no namespace", "P3: failed open", "A1: long warnings", "A3: long annotations",
		"budget spent", "budget of a message spent", "failed to configure policy", "failed to configure binding", "failed expression", "error of an expression",
		"no params found", "no namespace for params", "a namespace for params without", "unknown kind of params", "params", "several params", "configured params", "namespaceObject",
		"P5: a missing namespace",
		"CREATE", "UPDATE", "DELETE", "CONNECT", "dry run", "subresource", "namespaces", "widgets", "gadgets", "nodes",
	}
}

// tally counts events.
type tally map[string]int

func (y tally) add(c experiment, j judgement) {
	y["cases"]++
	verdict := "allowed"
	if !j.got.Allowed {
		verdict = fmt.Sprintf("denied with %d", j.got.Code)
	}
	events := map[string]bool{
		verdict: true, "warned": len(j.got.Warnings) > 0, "annotated": len(j.got.Audit) > 0, "audited": len(j.got.Failures) > 0,
		"dry run": c.request.GetDryRun(), "subresource": c.request.GetSubResource() != "", c.request.GetOperation(): true,
		c.request.GetResource().GetResource(): true, "P1: several denials": len(j.denials) > 1,
	}
	for _, p := range c.policies {
		events["params"] = events["params"] || p.Spec.ParamKind != nil
		events["namespaceObject"] = events["namespaceObject"] || strings.Contains(brief("", p.Spec), "namespaceObject")
		for _, b := range p.bindings {
			events["configured params"] = events["configured params"] || p.configured && p.Spec.ParamKind != nil && b.Spec.ParamRef != nil
			events["several params"] = events["several params"] || p.Spec.ParamKind != nil && b.Spec.ParamRef != nil && b.Spec.ParamRef.Selector != nil
		}
	}
	first := ""
	for _, text := range j.denials {
		policy := text
		if parts := strings.SplitN(text, "'", 3); len(parts) > 1 { // else it is about a missing namespace
			policy = parts[1]
		}
		events["two policies deny"] = events["two policies deny"] || first != "" && first != policy
		first = policy
		for event, part := range map[string]string{
			"budget spent": "denied request: validation failed due to running out of cost budget", "budget of a message spent": "failed messageExpression: ",
			"failed to configure policy": "failed to configure policy: ", "failed to configure binding": "failed to configure binding: ",
			"no params found": "no params found for policy binding", "no namespace for params": "cannot use namespaced paramRef",
			"a namespace for params without": "paramRef.namespace must not be provided", "unknown kind of params": "failed to find resource referenced by paramKind",
			"failed expression": "failed expression: ", "error of an expression": "resulted in error: ",
		} {
			events[event] = events[event] || strings.Contains(text, part)
		}
	}
	for _, event := range j.events {
		events[event] = true
	}
	for event, seen := range events {
		if seen {
			y[event]++
		}
	}
}
