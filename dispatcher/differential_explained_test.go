package dispatcher_test

import (
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// The explanations of the differential test are tested themselves: a wrong answer must not pass for a deviation.

// hangingExperiment is a request with a deadline and three mutating hooks: the first hangs, and the policy of the last is Fail.
func hangingExperiment() *experiment {
	w := newChance(1).world()
	w.Custom, w.Streams, w.Namespaces = true, false, map[string]map[string]string{"dev": {}}
	none, ignore, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	hook := func(name string, policy *admissionregistrationv1.FailurePolicyType) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: name + ".test.dev", FailurePolicy: policy, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}
	}
	w.Configurations = []configuration{{Name: "a", Stage: mutate, Webhooks: []admissionregistrationv1.MutatingWebhook{
		hook("hangs", &ignore), hook("patches", &ignore), hook("allows", &fail),
	}}}
	return &experiment{
		world: w, Stage: mutate, Deadline: time.Minute,
		Request: &admissionv1.AdmissionRequest{
			Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "dev", Name: "x", Operation: "CREATE",
			UserInfo: &admissionv1.UserInfo{Username: "jane", Extra: map[string]*admissionv1.ExtraValue{"team": {Items: []string{"a"}}}},
			Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{}}`)},
			Options:  &admissionv1.Object{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
		Scripts: map[string]script{
			"a/hangs.test.dev":   {{"", always("hangs", oracle.Answer{Hang: true})}},
			"a/patches.test.dev": {{"", patches(`[{"op":"add","path":"/spec/by","value":1}]`)}},
		},
	}
}

func TestTheTimeOfARequestExplainsOnlyWhatItCouldHaveCaused(t *testing.T) {
	e := hangingExperiment()
	lab := newLaboratory(t, e.world)
	failing := func(behind int) outcome { // the outcome if hooks that hang had failed, and the hooks behind so many calls too
		made := 0
		return lab.kubernetes(e, func(_ string, a oracle.Answer) oracle.Answer {
			if made++; a.Hang || made > behind {
				return oracle.Answer{Drop: true}
			}
			return a
		})
	}
	all, one := failing(3), failing(1)
	if len(all.Calls) != 3 || !all.Allowed || one.Status.Code != 500 {
		t.Fatalf("the hooks do not do what the test is about: %s\n%s", all, one)
	}
	one.Calls = one.Calls[:1]
	timeout := outcome{Status: status{Code: 504, Reason: "Timeout"}, Audit: map[string]string{}, FailedOpen: all.FailedOpen, Calls: all.Calls[:1]}
	denied := e.clone()
	denied.Scripts["a/patches.test.dev"] = script{{"", always("denies", oracle.Deny(403, "", "no"))}}
	leisurely := e.clone()
	leisurely.Deadline = 0
	but := func(o outcome, change func(o *outcome)) outcome {
		o.Calls = slices.Clone(o.Calls)
		change(&o)
		return o
	}
	for name, tt := range map[string]struct {
		experiment *experiment
		want, got  outcome
		by         string // D2 or D9; empty is not explained
	}{
		"The hooks behind one that hangs are called":              {e, timeout, all, "D9"},
		"Those behind one that hangs fail, by their own policies": {e, timeout, one, "D2"},
		"A fail-closed hook that is not called is passed over":    {e, timeout, but(one, func(o *outcome) { o.Allowed, o.Status, o.Object = true, status{}, all.Object }), ""},
		"A hook that has answered is not followed by the next":    {e, timeout, but(one, func(o *outcome) { o.Calls = all.Calls[:2] }), ""},
		"A hook that failed open is not told of":                  {e, timeout, but(all, func(o *outcome) { o.FailedOpen = nil }), ""},
		"A patch is lost":                                         {e, timeout, but(all, func(o *outcome) { o.Object = canonicalJSON(e.Request.GetObject().GetRaw()) }), ""},
		"Hooks are called in another order":                       {e, timeout, but(all, func(o *outcome) { o.Calls[0], o.Calls[1] = o.Calls[1], o.Calls[0] }), ""},
		"A hook is called twice":                                  {e, timeout, but(all, func(o *outcome) { o.Calls = append(o.Calls, o.Calls[2]) }), ""},
		"No hook is called":                                       {e, timeout, but(one, func(o *outcome) { o.Calls = nil }), ""},
		"A denial is overruled":                                   {denied, timeout, all, ""},
		"The request of kube-apiserver did not run out of time":   {e, all, one, ""},
		"The request has no deadline":                             {leisurely, timeout, all, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := &explanation{lab: lab, experiment: tt.experiment, want: tt.want, got: tt.got}
			by := ""
			switch {
			case x.noTimeLeft():
				by = "D2"
			case x.sharedTime():
				by = "D9"
			}
			if !x.settled() {
				by = ""
			}
			if by != tt.by {
				t.Errorf("explained by %q, want %q: %s", by, tt.by, differ(x.want, x.got))
			}
		})
	}
}

func TestOnlyTheDelayOfACallExplainsWhatItsHookIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		told    string
		elapsed time.Duration
		want    string
	}{
		"All of it":                                 {"10s", 0, "10s"},
		"The whole seconds that are left":           {"9s", time.Millisecond, "10s"},
		"Less, after a delay":                       {"8s", 1100 * time.Millisecond, "10s"},
		"Less than a delay explains":                {"8s", 900 * time.Millisecond, "8s"},
		"More than the hook asked for":              {"11s", time.Millisecond, "11s"},
		"Nothing":                                   {"", time.Minute, ""},
		"No duration":                               {"soon", time.Minute, "soon"},
		"A second less before any time has gone by": {"9s", 0, "9s"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := undelayed(tt.told, 10*time.Second, tt.elapsed); got != tt.want {
				t.Errorf("%q counts as %q, want %q", tt.told, got, tt.want)
			}
		})
	}
}
