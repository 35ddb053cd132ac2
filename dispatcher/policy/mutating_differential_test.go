package policy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	policies "github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// TestMutatingDifferential is [TestDifferential] for policies that mutate: the object that the API server stores has to be the same, or the refusal.
//
//	PORTCULLIS_CASES=100000 PORTCULLIS_SEED=7 go test ./dispatcher/policy -run TestMutatingDifferential
func TestMutatingDifferential(t *testing.T) {
	cases := citest.Cases(enoughCases, 2*enoughCases, 50*enoughCases)
	l, total := newMutatingLaboratory(t), tally{}
	for i := range (cases + requestsPerWorld - 1) / requestsPerWorld {
		seed := citest.Seed() + uint64(i)
		r := newRandom(seed)
		w := l.world(r.mutatingPolicies())
		for range requestsPerWorld {
			c := mutation{w, r.mutableRequest()}
			j := l.judge(c)
			if j.difference != "" {
				c, j = l.shrink(c, j)
				t.Fatalf("seed %d\n%s\ndifference (-kube-apiserver +portcullis):\n%s\nkube-apiserver: %+v\nportcullis: %+v", seed, c, j.difference, j.want, j.got)
			}
			j.count(total, c)
		}
	}
	t.Log(total)
	for _, event := range []string{
		"changed", "unchanged", "denied with 403", "denied with 500", "failed open", "M1", "M2", "M3", "M7", "P5: no namespace", "failed to configure policy",
		"failed to configure binding", "JSON Patch: ", "type mismatch: ", "resulted in error: ", "may not mutate atomic arrays", "error applying patch",
		"compilation error", "M6", "params", "no params found", "cannot use namespaced paramRef", "paramRef.namespace must not be provided",
		"failed to find resource referenced by paramKind", "reinvoked", "another version", "DELETE", "CREATE", "UPDATE", "CONNECT", "dry run", "subresource", "widgets changed",
	} {
		if cases >= enoughCases && total[event] == 0 {
			t.Errorf("no case of %q: the test does not see enough", event)
		}
	}
}

// mutatingLaboratory has both sides.
type mutatingLaboratory struct {
	testing.TB

	oracle                 *oracle.Oracle
	plugin, apart, carried *oracle.MutatingPolicies
	known                  cluster
	compile                *policies.Compiler
}

func newMutatingLaboratory(t testing.TB) *mutatingLaboratory {
	t.Helper()
	o := newOracle(t)
	plugin := o.MutatingPolicies(permissions())
	return &mutatingLaboratory{
		TB: t, oracle: o, plugin: plugin, apart: plugin.Apart(), carried: plugin.Carried(), known: newCluster(t), compile: policies.NewCompiler(),
	}
}

// mutatingWorld is a set of policies on both sides.
type mutatingWorld struct {
	policies   []boundMutating
	hooks      []mutating.PolicyHook
	named      []mutating.PolicyHook // hooks whose params have a kind
	params     bool
	dispatcher *dispatcher.Dispatcher
}

// mutation is a request in a world.
type mutation struct {
	*mutatingWorld

	request *admissionv1.AdmissionRequest
}

// String is the case for a person who has to understand it.
func (c mutation) String() string {
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

// world compiles policies, which are completed as the API server does.
func (l *mutatingLaboratory) world(all []boundMutating) *mutatingWorld {
	l.Helper()
	w, in, known := &mutatingWorld{policies: all}, match.Input{Revision: "r1"}, match.Cluster(l.known)
	for _, p := range all {
		legacyscheme.Scheme.Default(p.MutatingAdmissionPolicy)
		for _, b := range p.bindings {
			legacyscheme.Scheme.Default(b)
		}
		hook := oracle.CompileMutatingPolicy(p.MutatingAdmissionPolicy, p.bindings...)
		hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = informerOf(p.Spec.ParamKind)
		w.hooks = append(w.hooks, hook)
		if i, ok := hook.ParamInformer.(informer); ok {
			i.named = true
			hook.ParamInformer, w.params = i, true
		}
		w.named = append(w.named, hook)
		definition := l.compile.CompileMutating(p.MutatingAdmissionPolicy)
		if p.configured {
			definition, known = definition.WithParams(configured(l, p.Spec.ParamKind)), unasked{l.known}
		}
		in.Objects = append(in.Objects, match.Object{Policy: definition.Bind(p.bindings)})
	}
	snapshot, _ := match.Compile(in) // findings are expected: not every selector can be parsed
	source, codec := static{known: known, snapshot: snapshot}, builtin.New(builtin.Options{})
	var err error
	w.dispatcher, err = dispatcher.New(dispatcher.Options{
		Snapshots: source, Clusters: source, Streams: noStreams{}, Codec: func(a conversion.Allowance) chain.Codec { return codec.NewPatchSession(a) },
	})
	if err != nil {
		l.Fatal(err)
	}
	return w
}

// mutationOutcome is the answer to the client: the object that is stored, or the refusal.
type mutationOutcome struct {
	Object      any
	Code        int32
	Reason      string
	Group, Kind string
	Name        string
	Causes      []string
}

// mutationJudgement is the comparison of both.
type mutationJudgement struct {
	before     any // the object without policies
	want, got  mutationOutcome
	events     []string
	difference string
}

// judge runs a case through both.
func (l *mutatingLaboratory) judge(c mutation) (j mutationJudgement) {
	l.Helper()
	var costly bool
	j.got, costly = l.portcullis(c, &j)
	j.before = l.kubernetes(mutation{&mutatingWorld{}, c.request}, l.plugin).Object
	j.want = l.kubernetes(c, l.plugin)
	elsewhere, err := l.plugin.Elsewhere(c.hooks, c.request)
	if err != nil {
		l.Fatal(err)
	}
	if elsewhere {
		j.events = append(j.events, "another version")
	}
	j.difference = cmp.Diff(j.want, j.got)
	strict := func(o mutationOutcome) bool { return strings.Contains(fmt.Sprint(o.Causes), "strict decoding error") }
	again := func(deviation string, plugin *oracle.MutatingPolicies, hooks []mutating.PolicyHook) {
		if j.difference == "" || strict(j.want) {
			return
		}
		want := l.kubernetes(mutation{&mutatingWorld{hooks: hooks}, c.request}, plugin)
		if strict(want) || cmp.Diff(want, j.got) == "" {
			j.events, j.want, j.difference = append(j.events, deviation), want, cmp.Diff(want, j.got)
		}
	}
	if again("M1", l.apart, c.hooks); elsewhere {
		again("M2", l.carried, c.hooks)
	}
	if c.params {
		again("M6", l.apart, c.named)
		again("M6", l.carried, c.named)
	}
	switch {
	case j.difference == "":
	case strict(j.want):
		j.events, j.difference = append(j.events, "M3"), ""
	case costly:
		j.events, j.difference = append(j.events, "P6"), ""
	case j.got.Code == http.StatusInternalServerError && strings.Contains(j.got.Causes[0], anotherKind):
		j.events, j.difference = append(j.events, "M7"), ""
	case j.want.Code == http.StatusNotFound && c.request.GetNamespace() == "missing":
		j.events, j.difference = append(j.events, "P5: no namespace"), ""
	}
	return j
}

// anotherKind is in the answer of the mesh if a patch has changed the kind of an object.
const anotherKind = " cannot become one of "

// wordless leaves out the words of decoders and of patches that do not apply, which differ, and lists of errors that have no order.
func wordless(message string) string {
	for _, end := range []string{"JSON Patch: ", "Internal error occurred: ", "original object to typed object: ", "patch object to typed object: errors:"} {
		if before, after, ok := strings.Cut(message, end); ok && !strings.Contains(after, "strict decoding error") && !strings.Contains(after, anotherKind) {
			return before + end
		}
	}
	return message
}

// kubernetes is the outcome of kube-apiserver.
func (l *mutatingLaboratory) kubernetes(c mutation, plugin *oracle.MutatingPolicies) mutationOutcome {
	l.Helper()
	j, err := plugin.Judge(l.Context(), c.hooks, c.request)
	if err != nil {
		l.Fatalf("%v\n%s", err, c)
	}
	if j.Allowed {
		return mutationOutcome{Object: l.contentOf(j.FinalObject)}
	}
	o := mutationOutcome{Code: j.Code, Reason: string(j.Reason), Causes: []string{wordless(j.Message)}}
	if d := j.Details; d != nil && len(d.Causes) > 0 && j.Reason != "InternalError" {
		o.Group, o.Kind, o.Name, o.Causes = d.Group, d.Kind, d.Name, nil
		for _, cause := range d.Causes {
			o.Causes = append(o.Causes, wordless(cause.Message))
		}
	}
	return o
}

// contentOf is JSON as content.
func (l *mutatingLaboratory) contentOf(raw []byte) (content any) {
	l.Helper()
	if raw == nil {
		return nil
	}
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		l.Fatalf("%v: %s", err, raw)
	}
	return content
}

// portcullis is the outcome of the mesh, whose patch the API server applies.
func (l *mutatingLaboratory) portcullis(c mutation, j *mutationJudgement) (o mutationOutcome, costly bool) {
	l.Helper()
	req := sent(l, l.oracle, c.request)
	answer, err := c.dispatcher.Review(l.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_MUTATE, Explain: true, Admission: req})
	if err != nil {
		l.Fatal(err)
	}
	for i := range answer.Outcomes {
		if answer.Outcomes[i].GetRound() > 0 && answer.Outcomes[i].GetOutcome() != "skipped" {
			j.events = append(j.events, "reinvoked")
		}
	}
	costly = strings.Contains(fmt.Sprint(answer.Outcomes, answer.Response), "cost too much together")
	a, s := answer.Response, answer.Response.GetStatus()
	if len(a.GetWarnings()) > 0 {
		j.events = append(j.events, "failed open")
	}
	if !a.GetAllowed() {
		o = mutationOutcome{Code: s.GetCode(), Reason: s.GetReason(), Causes: []string{wordless(s.GetMessage())}}
		if d := s.GetDetails(); len(d.GetCauses()) > 0 {
			o.Group, o.Kind, o.Name, o.Causes = d.GetGroup(), d.GetKind(), d.GetName(), nil
			for _, cause := range d.GetCauses() {
				o.Causes = append(o.Causes, wordless(cause.GetMessage()))
			}
		}
		return o, costly
	}
	object := req.GetObject().GetRaw()
	if object == nil {
		return o, costly
	}
	if patch := a.GetPatch(); len(patch) > 0 {
		patched, err := conversion.ApplyPatch(object, patch)
		if err != nil {
			l.Fatalf("the patch %s does not apply: %v\n%s", patch, err, c)
		}
		object = patched.Raw
	}
	if object, err = l.oracle.Received(c.request, object); err != nil {
		return mutationOutcome{Code: http.StatusInternalServerError, Reason: "InternalError", Causes: []string{"Internal error occurred: "}}, costly
	}
	o.Object = l.contentOf(object)
	return o, costly
}

// count counts the events of a case.
func (j *mutationJudgement) count(total tally, c mutation) {
	total["cases"]++
	total[c.request.GetOperation()]++
	resource, text := c.request.GetResource().GetResource(), fmt.Sprint(j.want.Causes)
	verdict := "unchanged"
	if j.want.Code != 0 {
		verdict = fmt.Sprintf("denied with %d", j.want.Code)
	} else if cmp.Diff(j.before, j.want.Object) != "" {
		verdict = "changed"
		total[resource+" changed"]++
	}
	events := append([]string{verdict}, j.events...)
	for _, part := range []string{
		"failed to configure policy", "failed to configure binding", "JSON Patch: ", "type mismatch: ", "resulted in error: ", "may not mutate atomic arrays",
		"error applying patch", "compilation error", "no params found", "cannot use namespaced paramRef", "paramRef.namespace must not be provided",
		"failed to find resource referenced by paramKind",
	} {
		if strings.Contains(text, part) {
			events = append(events, part)
		}
	}
	if c.request.GetDryRun() {
		events = append(events, "dry run")
	}
	if c.params && verdict == "changed" {
		events = append(events, "params")
	}
	if c.request.GetSubResource() != "" {
		events = append(events, "subresource")
	}
	slices.Sort(events)
	for _, event := range slices.Compact(events) {
		total[event]++
	}
}

// shrink looks for a smaller case that still differs.
func (l *mutatingLaboratory) shrink(c mutation, j mutationJudgement) (mutation, mutationJudgement) {
	l.Helper()
	return shrunk(c, j, func(c mutation) [][]boundMutating { return reducedMutating(c.policies) },
		func(smaller []boundMutating) (mutation, mutationJudgement, bool) {
			tried := mutation{l.world(smaller), c.request}
			found := l.judge(tried)
			return tried, found, found.difference != ""
		})
}

// reducedMutating are the policies with one thing less.
func reducedMutating(all []boundMutating) (smaller [][]boundMutating) {
	for i, p := range all {
		if len(all) > 1 {
			smaller = append(smaller, slices.Delete(slices.Clone(all), i, i+1))
		}
		if len(p.bindings) > 1 {
			smaller = append(smaller, fewer(all, i, func(p *boundMutating) *[]*mutating.PolicyBinding { return &p.bindings })...)
		}
		for k, b := range p.bindings {
			if b.Spec.ParamRef != nil {
				smaller = append(smaller, with(all, i, func(p *boundMutating) { p.bindings[k].Spec.ParamRef = nil }))
			}
			if b.Spec.MatchResources != nil {
				smaller = append(smaller, with(all, i, func(p *boundMutating) { p.bindings[k].Spec.MatchResources = nil }))
			}
		}
		if len(p.Spec.Mutations) > 1 {
			smaller = append(smaller, fewer(all, i, func(p *boundMutating) *[]admissionregistrationv1.Mutation { return &p.Spec.Mutations })...)
		}
		smaller = append(smaller, fewer(all, i, func(p *boundMutating) *[]admissionregistrationv1.MatchCondition { return &p.Spec.MatchConditions })...)
		smaller = append(smaller, fewer(all, i, func(p *boundMutating) *[]admissionregistrationv1.NamedRuleWithOperations {
			return &p.Spec.MatchConstraints.ExcludeResourceRules
		})...)
		if p.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
			smaller = append(smaller, with(all, i, func(p *boundMutating) {
				p.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
			}))
		}
	}
	return smaller
}

// Clone copies a policy and its bindings.
func (p boundMutating) Clone() boundMutating {
	c := boundMutating{MutatingAdmissionPolicy: p.DeepCopy(), configured: p.configured}
	for _, b := range p.bindings {
		c.bindings = append(c.bindings, b.DeepCopy())
	}
	return c
}
