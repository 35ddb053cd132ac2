package match_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
	reinvoke = admissionv1.Stage_STAGE_REINVOKE
)

// everything is a rule that covers every request.
func everything() []admissionregistrationv1.RuleWithOperations {
	return rule("*", "*", "*", "*/*")
}

func rule(operation admissionregistrationv1.OperationType, group, version string, resources ...string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

// webhookURL keeps findings about streams out of tests about something else.
func webhookURL() admissionregistrationv1.WebhookClientConfig {
	url := "https://hook.example.com"
	return admissionregistrationv1.WebhookClientConfig{URL: &url}
}

// mutating is a configuration whose hooks see everything.
func mutating(scope, name string, hooks ...string) match.Object {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, h := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: h, Rules: everything(), ClientConfig: webhookURL()})
	}
	return match.Object{Scope: scope, Source: scope + name + ".yaml", Mutating: c}
}

// validating is a configuration whose hooks see everything.
func validating(scope, name string, hooks ...string) match.Object {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, h := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: h, Rules: everything(), ClientConfig: webhookURL()})
	}
	return match.Object{Scope: scope, Source: scope + name + ".yaml", Validating: c}
}

// compile is match.Compile without findings.
func compile(t testing.TB, in match.Input) *match.Snapshot {
	t.Helper()
	snapshot, findings := match.Compile(in)
	if len(findings) > 0 {
		t.Fatalf("findings: %v", findings)
	}
	return snapshot
}

// createPod is a request that nothing is special about.
func createPod() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Kind:      &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name:      "p",
		Namespace: "dev",
		Operation: "CREATE",
		Object:    &admissionv1.Object{Raw: []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"dev"}}}`)},
	}
}

func TestHooksAreOrderedByConfigurationThenScopeThenPosition(t *testing.T) {
	snapshot := compile(t, match.Input{Revision: "r1", Objects: []match.Object{
		mutating("", "b", "z.b.io"), validating("", "ab", "v.ab.io"), mutating("c1", "a", "z.a.io"), mutating("", "a", "y.a.io", "x.a.io", "y.a.io"),
	}})
	want := []match.HookID{
		{Stage: mutate, Configuration: "a", Name: "y.a.io"},
		{Stage: mutate, Configuration: "a", Name: "x.a.io"},
		{Stage: mutate, Configuration: "a", Name: "y.a.io", Index: 1},
		{Scope: "c1", Stage: mutate, Configuration: "a", Name: "z.a.io"},
		{Stage: validate, Configuration: "ab", Name: "v.ab.io"},
		{Stage: mutate, Configuration: "b", Name: "z.b.io"},
	}
	if diff := cmp.Diff(want, ids(snapshot.Hooks())); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if snapshot.Revision() != "r1" {
		t.Errorf("revision %q", snapshot.Revision())
	}

	backwards := snapshot.Backwards().Hooks()
	if diff := cmp.Diff([]match.HookID{want[5], want[3], want[2], want[1], want[4], want[0]}, ids(backwards)); diff != "" {
		t.Errorf("backwards (-want +got):\n%s", diff)
	}
	for i, h := range backwards {
		if h.Ordinal() != i || snapshot.Hooks()[i].Ordinal() != i {
			t.Errorf("hook %d has the ordinals %d and %d", i, h.Ordinal(), snapshot.Hooks()[i].Ordinal())
		}
	}
}

func TestWhatAConfigurationLeavesOutHasKubernetesMeaning(t *testing.T) {
	got := compile(t, match.Input{Objects: []match.Object{validating("", "a", "hook.io")}}).Hooks()[0]
	if got.FailurePolicy != admissionregistrationv1.Fail || got.Timeout != match.DefaultTimeout || got.SideEffects != "" ||
		got.MatchPolicy != admissionregistrationv1.Exact || got.Reinvocation != admissionregistrationv1.NeverReinvocationPolicy {
		t.Errorf("hook %+v", got)
	}
	if d := got.ShouldCall(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); !d.Match {
		t.Errorf("absent selectors select everything: %+v", d)
	}
}

func TestWhatAConfigurationSaysIsInTheHook(t *testing.T) {
	seconds := int32(3)
	ignore, equivalent, some, ifNeeded := admissionregistrationv1.Ignore, admissionregistrationv1.Equivalent,
		admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.IfNeededReinvocationPolicy
	o := mutating("", "a", "hook.io")
	o.Mutating.Webhooks[0] = admissionregistrationv1.MutatingWebhook{
		Name: "hook.io", ClientConfig: webhookURL(), Rules: everything(), TimeoutSeconds: &seconds, FailurePolicy: &ignore,
		MatchPolicy: &equivalent, SideEffects: &some, ReinvocationPolicy: &ifNeeded, AdmissionReviewVersions: []string{"v1", "v1beta1"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"c": "d"}},
	}
	got := compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	if got.FailurePolicy != ignore || got.Timeout != 3*time.Second || got.SideEffects != some || got.MatchPolicy != equivalent ||
		got.Reinvocation != ifNeeded || !slices.Equal(got.ReviewVersions, []string{"v1", "v1beta1"}) || got.ClientConfig.URL == nil {
		t.Errorf("hook %+v", got)
	}
	if got.NamespaceSelector().MatchLabels["a"] != "b" || got.ObjectSelector().MatchLabels["c"] != "d" || len(got.Rules()) != 1 {
		t.Errorf("hook %+v", got)
	}
}

func TestTheMostPreciseRouteCounts(t *testing.T) {
	binding := func(hook string, stage admissionv1.Stage, timeout time.Duration) match.RouteBinding {
		return match.RouteBinding{Configuration: "a", Hook: hook, Stage: stage, Route: match.Route{Timeout: timeout}}
	}
	all := []match.RouteBinding{binding("", 0, 1), binding("", validate, 2), binding("hook.io", 0, 3), binding("hook.io", validate, 4)}
	for n := range all {
		in := match.Input{Objects: []match.Object{validating("", "a", "hook.io")}, Routes: all[:n+1]}
		snapshot, findings := match.Compile(in)
		if h := snapshot.Hooks()[0]; h.Timeout != time.Duration(n+1) || h.Route.Timeout != h.Timeout {
			t.Errorf("with %d routes the timeout is that of route %d", n+1, h.Timeout)
		}
		if len(findings) != n || (n > 0 && findings[0].Code != match.CodeRouteOverridden) {
			t.Errorf("with %d routes: %v", n+1, findings)
		}
	}
}

func TestAHookNamesTheRoutesThatCount(t *testing.T) {
	route := func(name, hook string) match.RouteBinding {
		return match.RouteBinding{Name: name, Digest: name, Configuration: "a", Hook: hook}
	}
	object := validating("", "a", "one.io", "two.io", "three.io")
	object.Digest = "d"
	in := match.Input{Objects: []match.Object{object, validating("", "b", "one.io")}, Routes: []match.RouteBinding{
		route("all", ""), route("one", "one.io"), route("two-b", "two.io"), route("two-a", "two.io"),
	}}
	for _, renamed := range []string{"one", "uno"} {
		in.Routes[1].Name = renamed
		in.Last, _ = match.Compile(in)
		got := map[string][]string{}
		for _, h := range in.Last.Hooks() {
			got[h.ID.Configuration+"/"+h.ID.Name] = h.RoutedBy
		}
		want := map[string][]string{"a/one.io": {renamed}, "a/two.io": {"two-a", "two-b"}, "a/three.io": {"all"}, "b/one.io": nil}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestARouteIsForTheHooksThatItNames(t *testing.T) {
	stream := match.Route{Stream: true, Hosts: []string{"spiffe://mesh/h"}, Clusters: []string{"c1"}, Hedge: match.Hedge{Enabled: true}, AllDenials: true}
	snapshot, _ := match.Compile(match.Input{
		Objects: []match.Object{validating("", "a", "one.io", "two.io"), mutating("", "a", "one.io"), validating("", "b", "one.io")},
		Routes:  []match.RouteBinding{{Configuration: "a", Hook: "one.io", Stage: validate, Route: stream}},
	})
	for _, h := range snapshot.Hooks() {
		named := h.ID == match.HookID{Stage: validate, Configuration: "a", Name: "one.io"}
		if diff := cmp.Diff(match.Route{}, h.Route); (diff == "") == named {
			t.Errorf("%+v has route %+v", h.ID, h.Route)
		}
		if h.Serves("c2") == named || !h.Serves("c1") {
			t.Errorf("%+v serves the wrong clusters", h.ID)
		}
	}
}

func TestHooksArePendingWhileStreamsServeThemAndNobodyHasAnsweredAProbe(t *testing.T) {
	open := validating("", "a", "open.io")
	open.Validating.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{}
	open.Pending = []string{"open.io"}
	marked := validating("", "b", "stream.io", "immediate.io", "https.io", "unmarked.io")
	marked.Pending = []string{"https.io", "immediate.io", "stream.io", "gone.io"}
	both := mutating("", "b", "stream.io", "stream.io")
	both.Pending = []string{"stream.io"}
	snapshot, _ := match.Compile(match.Input{
		Objects: []match.Object{open, marked, both},
		Routes: []match.RouteBinding{
			{Configuration: "b", Route: match.Route{Stream: true}},
			{Configuration: "b", Hook: "immediate.io", Route: match.Route{Stream: true, Immediate: true}},
			{Configuration: "b", Hook: "https.io"},
		},
	})
	var got []string
	for _, h := range snapshot.Hooks() {
		if h.Pending {
			got = append(got, fmt.Sprint(h.ID.Stage, " ", h.ID.Name, " ", h.ID.Index))
		}
		if h.Pending == h.Decides() {
			t.Errorf("%s: pending is %t, and decides %t", h.ID.Name, h.Pending, h.Decides())
		}
	}
	slices.Sort(got)
	want := []string{"STAGE_MUTATE stream.io 0", "STAGE_MUTATE stream.io 1", "STAGE_VALIDATE open.io 0", "STAGE_VALIDATE stream.io 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
}

func TestAnEmptyClientConfigMeansStreams(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{}
	snapshot, findings := match.Compile(match.Input{Objects: []match.Object{o}})
	if !snapshot.Hooks()[0].Route.Stream {
		t.Error("the hook is no stream")
	}
	expectFindings(t, findings, "warning: a.yaml: ValidatingWebhookConfiguration/a webhooks[0]: *no host may serve it* (no-host)")
}

func TestFindingsNameWhatIsWrongAndWhatItMeans(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	ignore := admissionregistrationv1.Ignore
	for name, tc := range map[string]struct {
		in   func(*match.Input, *admissionregistrationv1.ValidatingWebhook)
		want []string
	}{
		"a namespaceSelector that cannot be parsed": {func(_ *match.Input, w *admissionregistrationv1.ValidatingWebhook) { w.NamespaceSelector = bad },
			[]string{`error: a.yaml: ValidatingWebhookConfiguration/a webhooks[0].namespaceSelector: *"Near"* refused with 500 (selector)`}},
		"an objectSelector that cannot be parsed": {func(_ *match.Input, w *admissionregistrationv1.ValidatingWebhook) { w.ObjectSelector = bad },
			[]string{`error: a.yaml: ValidatingWebhookConfiguration/a webhooks[0].objectSelector: *"Near"* refused with 500 (selector)`}},
		"a condition that does not compile": {func(_ *match.Input, w *admissionregistrationv1.ValidatingWebhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "1 +"}}
		}, []string{`error: a.yaml: ValidatingWebhookConfiguration/a webhooks[0].matchConditions: *compilation failed* failurePolicy Fail refuses * 403 (condition)`}},
		"a condition that asks the authorizer": {func(_ *match.Input, w *admissionregistrationv1.ValidatingWebhook) {
			w.FailurePolicy = &ignore
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "true"}, {Name: "y", Expression: `authorizer.path("/").check("get").allowed()`}}
		}, []string{`info: a.yaml: ValidatingWebhookConfiguration/a webhooks[0].matchConditions[1]: *authorizer* failurePolicy Ignore leaves the hook out* (authorizer)`}},
		"a second object of the same name": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			o := validating("", "a", "other.io")
			o.Source = "b.yaml"
			in.Objects = append(in.Objects, o)
		}, []string{`error: b.yaml: ValidatingWebhookConfiguration/a: a.yaml has the same object* (duplicate)`}},
		"an object that is neither": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Objects = append(in.Objects, match.Object{Source: "c.yaml"})
		}, []string{`error: c.yaml: *must be a validating configuration, a mutating configuration or a policy* (rejected)`}},
		"two routes that say the same": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Routes = []match.RouteBinding{{Name: "two", Source: "d.yaml", Configuration: "a"}, {Name: "one", Configuration: "a"}}
		}, []string{
			`error: HookRoute/one: HookRoute "two" names the same hooks*on which they agree count*(route-conflict)`,
			`error: d.yaml: HookRoute/two: HookRoute "one" names the same hooks*on which they agree count*(route-conflict)`,
		}},
		"three routes of other clusters": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			for _, name := range []string{"b", "c", "a"} {
				in.Routes = append(in.Routes, match.RouteBinding{Name: name, Configuration: "a", Route: match.Route{Clusters: []string{name}}})
			}
		}, []string{
			`error: HookRoute/a: HookRoute "b", "c" names the same hooks* every call of these hooks fails* (route-conflict)`,
			`error: HookRoute/b: HookRoute "a", "c" *`, `error: HookRoute/c: HookRoute "a", "b" *`,
			`warning: a.yaml: ValidatingWebhookConfiguration/a webhooks[0]: *no host may serve it* (no-host)`,
		}},
		"a route to nothing": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Routes = []match.RouteBinding{{Name: "one", Configuration: "a", Stage: mutate}}
		}, []string{`warning: HookRoute/one spec.stage: the hooks that it names are of another stage* (route-unused)`}},
		"a route to a hook that is not there": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Routes = []match.RouteBinding{{Name: "one", Configuration: "a", Hook: "other.io"}}
		}, []string{`warning: HookRoute/one spec.hook: *"a" has no hook "other.io"* (route-unused)`}},
		"a route to a configuration that is not there": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Routes = []match.RouteBinding{{Name: "one", Configuration: "b"}}
		}, []string{`warning: HookRoute/one spec.configuration: there is no configuration "b"* (route-unused)`}},
		"a route beside more precise ones": {func(in *match.Input, _ *admissionregistrationv1.ValidatingWebhook) {
			in.Routes = []match.RouteBinding{{Name: "one", Configuration: "a"}, {Name: "two", Configuration: "a", Hook: "hook.io"}}
		}, []string{`warning: HookRoute/one: every hook that it names has a more precise HookRoute* (route-overridden)`}},
	} {
		t.Run(name, func(t *testing.T) {
			in := match.Input{Objects: []match.Object{validating("", "a", "hook.io")}}
			tc.in(&in, &in.Objects[0].Validating.Webhooks[0])
			snapshot, findings := match.Compile(in)
			expectFindings(t, findings, tc.want...)
			if len(snapshot.Hooks()) != 1 || snapshot.Hooks()[0].ID.Name != "hook.io" {
				t.Errorf("hooks %v", ids(snapshot.Hooks()))
			}
		})
	}
}

// expectFindings compares with patterns in which a star stands for anything.
func expectFindings(t *testing.T, findings []match.Finding, want ...string) {
	t.Helper()
	if len(findings) != len(want) {
		t.Fatalf("findings %v, want %q", findings, want)
	}
	for i, pattern := range want {
		rest := findings[i].String()
		for j, part := range strings.Split(pattern, "*") {
			at := strings.Index(rest, part)
			if at < 0 || (j == 0 && at > 0) {
				t.Errorf("finding %q, want %q", findings[i], pattern)
				break
			}
			rest = rest[at+len(part):]
		}
	}
}
