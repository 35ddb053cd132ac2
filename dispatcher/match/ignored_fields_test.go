package match_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestWhatARouteAsksInVainIsReported(t *testing.T) {
	speculate, hedge := match.Route{Stream: true, Hosts: []string{"h"}, Speculate: true}, match.Route{Hedge: match.Hedge{Enabled: true}}
	all := match.Route{Speculate: true, Hedge: match.Hedge{Enabled: true}, AllDenials: true}
	shadow := match.Route{Shadow: true}
	everything := all
	everything.Shadow = true
	const none, onDryRun, some = admissionregistrationv1.SideEffectClassNone,
		admissionregistrationv1.SideEffectClassNoneOnDryRun, admissionregistrationv1.SideEffectClassSome
	for name, tc := range map[string]struct {
		stage   admissionv1.Stage
		effects admissionregistrationv1.SideEffectClass
		route   match.Route
		want    []string
	}{
		"a mutating hook without side effects can speculate":    {mutate, none, speculate, nil},
		"any hook without side effects can be hedged":           {validate, none, hedge, nil},
		"all denials of validating hooks can be told":           {validate, some, match.Route{AllDenials: true}, nil},
		"a hook without side effects can be in shadow":          {mutate, none, shadow, nil},
		"nothing is asked of a hook that is asked for nothing":  {mutate, some, match.Route{}, nil},
		"nobody knows how busy a webhook is":                    {mutate, none, match.Route{Speculate: true}, []string{`warning: r.yaml: HookRoute/r spec.speculate: *over HTTPS*no effect (no-effect)`}},
		"validating hooks are called at the same time":          {validate, none, speculate, []string{`warning: r.yaml: HookRoute/r spec.speculate: hook "hook.io" validates*no effect (no-effect)`}},
		"side effects only in a dry run":                        {mutate, onDryRun, speculate, []string{`warning: r.yaml: HookRoute/r spec.speculate: *ahead of others but in dry runs*NoneOnDryRun* (no-effect)`}},
		"side effects":                                          {mutate, some, speculate, []string{`warning: r.yaml: HookRoute/r spec.speculate: *are Some and not None: this has no effect (no-effect)`}},
		"side effects of which nothing is known":                {mutate, "", speculate, []string{`warning: r.yaml: HookRoute/r spec.speculate: *are not declared and not None* (no-effect)`}},
		"side effects that would happen twice":                  {validate, some, hedge, []string{`warning: r.yaml: HookRoute/r spec.hedge: *never asked twice*Some* (no-effect)`}},
		"side effects that would happen twice but in a dry run": {validate, onDryRun, hedge, []string{`warning: r.yaml: HookRoute/r spec.hedge: *but in dry runs* (no-effect)`}},
		"a chain ends with its first denial":                    {mutate, none, match.Route{AllDenials: true}, []string{`warning: r.yaml: HookRoute/r spec.allDenials: *mutates* (no-effect)`}},
		"side effects of a hook in shadow":                      {validate, onDryRun, shadow, []string{`info: r.yaml: HookRoute/r spec.shadow: *side effects (sideEffects: NoneOnDryRun) (side-effects)`}},
		"everything that a validating hook cannot have in shadow": {validate, none, everything, []string{
			`warning: r.yaml: HookRoute/r spec.speculate: *validates* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.hedge: *in shadow* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.allDenials: *in shadow* (no-effect)`,
		}},
		"everything that a mutating hook cannot have in shadow": {mutate, "", everything, []string{
			`warning: r.yaml: HookRoute/r spec.speculate: *in shadow* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.hedge: *in shadow* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.allDenials: *mutates* (no-effect)`,
			`info: r.yaml: HookRoute/r spec.shadow: *(sideEffects: not declared) (side-effects)`,
		}},
		"everything that an initializer cannot have": {initialize, none, everything, []string{
			`warning: r.yaml: HookRoute/r spec.speculate: *initializes* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.hedge: *initializes* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.allDenials: *initializes* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.shadow: *never asked* (no-effect)`,
			`warning: r.yaml: InitializerConfiguration/a webhooks[0]: no identity may act* (no-host)`,
		}},
		"an initializer that hosts serve can be in shadow": {initialize, none, match.Route{Stream: true, Hosts: []string{"h"}, Shadow: true}, nil},
		"an initializer that a controller serves":          {initialize, none, match.Route{Hosts: []string{"h"}}, nil},
		"hooks that are no initializers have no order of their own": {mutate, none, match.Route{After: []string{"a"}, Before: []string{"b"}}, []string{
			`warning: r.yaml: HookRoute/r spec.after: hook "hook.io" is no initializer* (no-effect)`,
			`warning: r.yaml: HookRoute/r spec.before: hook "hook.io" is no initializer* (no-effect)`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v, m := validating("", "a", "hook.io"), mutating("", "a", "hook.io")
			if tc.effects != "" {
				v.Validating.Webhooks[0].SideEffects, m.Mutating.Webhooks[0].SideEffects = &tc.effects, &tc.effects
			}
			o := v
			switch {
			case tc.stage == mutate:
				o = m
			case tc.stage == initialize:
				o = initializing("a", "hook.io")
				o.Source = "r.yaml"
			}
			_, findings := match.Compile(match.Input{
				Objects: []match.Object{o},
				Routes:  []match.RouteBinding{{Name: "r", Source: "r.yaml", Configuration: "a", Route: tc.route}},
			})
			expectFindings(t, findings, tc.want...)
		})
	}
}

// shadowed compiles a fail-closed hook that asks for reinvocation, and is in shadow.
func shadowed(t *testing.T, change func(*admissionregistrationv1.MutatingWebhook)) *match.Hook {
	t.Helper()
	o := mutating("", "a", "hook.io")
	w := &o.Mutating.Webhooks[0]
	fail, again, none := admissionregistrationv1.Fail, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.SideEffectClassNone
	w.FailurePolicy, w.ReinvocationPolicy, w.SideEffects = &fail, &again, &none
	change(w)
	return compile(t, match.Input{
		Objects: []match.Object{o}, Routes: []match.RouteBinding{{Name: "r", Configuration: "a", Route: match.Route{Shadow: true}}},
	}).Hooks()[0]
}

func TestAHookInShadowFailsOpenAndIsAskedOnce(t *testing.T) {
	h := shadowed(t, func(*admissionregistrationv1.MutatingWebhook) {})
	if h.FailurePolicy != admissionregistrationv1.Ignore || h.Reinvocation != admissionregistrationv1.NeverReinvocationPolicy || h.FailsClosed() {
		t.Errorf("hook %+v", h)
	}
	failing := shadowed(t, func(w *admissionregistrationv1.MutatingWebhook) {
		w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "fails", Expression: "object.missing.missing == 1"}}
	})
	if d := failing.ShouldCall(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); d.Skip != match.SkipConditions {
		t.Errorf("a condition that fails: %+v", d)
	}
}

func TestExplainSaysThatAHookInShadowRefusesNothing(t *testing.T) {
	o := validating("", "a", "hook.io")
	none := admissionregistrationv1.SideEffectClassNone
	o.Validating.Webhooks[0].SideEffects = &none
	o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	req := createPod()
	req.Namespace = "missing"
	got := explain(t, compile(t, match.Input{
		Objects: []match.Object{o}, Routes: []match.RouteBinding{{Configuration: "a", Route: match.Route{Shadow: true}}},
	}), req)
	want := map[string]string{"hook.io": `: it is in shadow, and cannot be matched: namespaces "missing" not found`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}
