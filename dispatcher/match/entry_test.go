package match

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// validatingHooks are so many hooks, every other of which fails open.
func validatingHooks(count int) []*Hook {
	hooks := make([]*Hook, count)
	for i := range hooks {
		h := &Hook{ID: HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "c", Name: fmt.Sprint(i)}, FailurePolicy: admissionregistrationv1.Fail}
		if i%2 == 1 {
			h.FailurePolicy = admissionregistrationv1.Ignore
		}
		h.namespaceSelector, h.objectSelector, h.entryNamespaces = newSelector(nil), newSelector(nil), newSelector(nil)
		h.fingerprint = newFingerprint(h)
		hooks[i] = h
	}
	return hooks
}

func TestEntriesAreTheSameAsText(t *testing.T) {
	hooks := validatingHooks(3)
	e := NewEntry(EntryFailClosed, 11*time.Second, hooks, nil)
	if back := ParseEntry(e.String()); back != e {
		t.Errorf("%+v became %+v", e, back)
	}
	slices.Reverse(hooks)
	if again := NewEntry(EntryFailClosed, 11*time.Second, hooks, nil); again != e {
		t.Errorf("in another order %+v, want %+v", again, e)
	}
	if text := (Entry{Name: EntryFailOpen}).String(); text != EntryFailOpen {
		t.Errorf("without a plan: %q", text)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./"
	if bad := strings.Trim(e.String(), alphabet); bad != "" {
		t.Errorf("%q needs escapes in a URL: %q", e, bad)
	}
}

func TestPlansThatAreNoneKnowNothing(t *testing.T) {
	longest := strings.Repeat("A", MaxPlanHooks*fingerprintLength)
	for text, want := range map[string]Entry{
		"":                                     {},
		"fail-open":                            {Name: "fail-open"},
		"fail-open/":                           {Name: "fail-open"},
		"fail-open/10":                         {Name: "fail-open"},
		"fail-open/.":                          {Name: "fail-open"},
		"fail-open/0.":                         {Name: "fail-open"},
		"fail-open/31.":                        {Name: "fail-open"},
		"fail-open/-1.":                        {Name: "fail-open"},
		"fail-open/99999999999999999999.":      {Name: "fail-open"},
		"fail-open/10.AAAAAAA":                 {Name: "fail-open"},
		"fail-open/10." + longest + "AAAAAAAA": {Name: "fail-open"},
		"fail-open/10.":                        {Name: "fail-open", Timeout: 10 * time.Second},
		"fail-open/30.AAAAAAAA":                {Name: "fail-open", Timeout: 30 * time.Second, planned: "AAAAAAAA"},
		"fail-open/10." + longest:              {Name: "fail-open", Timeout: 10 * time.Second, planned: longest},
	} {
		if got := ParseEntry(text); got != want {
			t.Errorf("%.40q: %+v, want %+v", text, got, want)
		}
	}
}

func TestAnEntryCallsTheHooksOfTheOtherThatItsPlanDoesNotHave(t *testing.T) {
	hooks := validatingHooks(2)
	closed, open := hooks[0], hooks[1]
	for text, want := range map[string]string{
		"": "closed open", "of-my-own": "closed open", EntryFailClosed: "closed open", EntryFailOpen: "closed open",
		NewEntry(EntryFailClosed, 1e9, nil, nil).String():             "closed open",
		NewEntry(EntryFailClosed, 1e9, []*Hook{closed}, nil).String(): "closed open",
		NewEntry(EntryFailClosed, 1e9, hooks, nil).String():           "closed",
		NewEntry(EntryFailOpen, 1e9, hooks, nil).String():             "open",
		NewEntry(EntryAlwaysFailOpen, 1e9, hooks, nil).String():       "closed",
		EntryAlwaysFailOpen: "closed open",
		NewEntry(EntryFailOpen, 1e9, []*Hook{open}, nil).String():   "closed open",
		NewEntry("of-my-own", 1e9, hooks, nil).String():             "closed open",
		NewEntry(EntryFailOpen, 1e9, hooks, nil).String() + "AAAA":  "closed open",
		EntryFailOpen + "/10.zzzzzzzz" + string(closed.fingerprint): "closed open", // not sorted: nothing is found, and nothing lost
	} {
		var called []string
		for _, h := range hooks {
			if h.In(ParseEntry(text)) {
				called = append(called, map[*Hook]string{closed: "closed", open: "open"}[h])
			}
		}
		if got := strings.Join(called, " "); got != want {
			t.Errorf("%q calls %q, want %q", text, got, want)
		}
	}
}

// A fingerprint covers exactly the fields of a hook that its entry depends on.
func TestFingerprints(t *testing.T) {
	h := func(change func(*admissionregistrationv1.ValidatingWebhook)) fingerprint {
		w := admissionregistrationv1.ValidatingWebhook{
			Name: "a.example.com", Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}
		change(&w)
		s, _ := Compile(Input{Objects: []Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{w},
		}}}})
		return s.Hooks()[0].fingerprint
	}
	ignore, equivalent, namespaced := admissionregistrationv1.Ignore, admissionregistrationv1.Equivalent, admissionregistrationv1.NamespacedScope
	fail, seconds := admissionregistrationv1.Fail, int32(3)
	type webhook = admissionregistrationv1.ValidatingWebhook
	seen := map[fingerprint]string{h(func(*webhook) {}): "unchanged"}
	for what, change := range map[string]func(*webhook){
		"name": func(w *webhook) { w.Name = "b.example.com" }, "policy": func(w *webhook) { w.FailurePolicy = &ignore },
		"match policy": func(w *webhook) { w.MatchPolicy = &equivalent }, "operations": func(w *webhook) { w.Rules[0].Operations[0] = "UPDATE" },
		"groups":    func(w *webhook) { w.Rules[0].APIGroups[0] = "apps" },
		"versions":  func(w *webhook) { w.Rules[0].APIVersions = append(w.Rules[0].APIVersions, "v2") },
		"resources": func(w *webhook) { w.Rules[0].Resources[0] = "pods/status" }, "scope": func(w *webhook) { w.Rules[0].Scope = &namespaced },
		"rules": func(w *webhook) { w.Rules = append(w.Rules, w.Rules...) },
		"namespace selector": func(w *webhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"object selector":    func(w *webhook) { w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} },
		"malformed selector": func(w *webhook) { w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"!": "b"}} },
	} {
		f := h(change)
		if other, ok := seen[f]; ok || len(f) != fingerprintLength {
			t.Errorf("with another %s the fingerprint is %q, that of %q", what, f, other)
		}
		seen[f] = what
	}
	for what, change := range map[string]func(*webhook){
		"default policy": func(w *webhook) { w.FailurePolicy = &fail }, "timeout": func(w *webhook) { w.TimeoutSeconds = &seconds },
		"condition": func(w *webhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
		},
		"empty selector": func(w *webhook) { w.NamespaceSelector = &metav1.LabelSelector{} },
		"address":        func(w *webhook) { w.ClientConfig.URL = &w.Name },
	} {
		if f := h(change); seen[f] != "unchanged" {
			t.Errorf("with another %s the fingerprint is %q", what, f)
		}
	}
}

func TestReadingAnEntryAllocatesNothing(t *testing.T) {
	hooks := validatingHooks(2)
	for _, text := range []string{"", EntryFailOpen, NewEntry(EntryFailOpen, 11*time.Second, hooks, nil).String()} {
		if n := testing.AllocsPerRun(100, func() { hooks[0].In(ParseEntry(text)) }); n > 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	hooks := validatingHooks(4)
	f.Add(NewEntry(EntryFailClosed, 11*time.Second, hooks, nil).String())
	f.Add("fail-open/10.")
	f.Add("fail-open//10.AAAAAAAA/")
	f.Fuzz(func(t *testing.T, text string) {
		e := ParseEntry(text)
		if again := ParseEntry(e.String()); again != e {
			t.Errorf("%q: %+v, and then %+v", text, e, again)
		}
		for _, h := range hooks {
			if own := h.FailsClosed() == (e.Name == EntryFailClosed); own && !h.In(e) {
				t.Errorf("%q leaves out a hook of its own", text)
			}
		}
	})
}

func BenchmarkIn(b *testing.B) {
	for _, count := range []int{1, 20, MaxPlanHooks} {
		hooks := validatingHooks(count)
		open := hooks[len(hooks)-1]
		open.FailurePolicy = admissionregistrationv1.Ignore
		open.fingerprint = newFingerprint(open)
		text := NewEntry(EntryFailClosed, 11*time.Second, hooks, nil).String()
		b.Run(fmt.Sprintf("%dHooks", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e := ParseEntry(text); open.In(e) {
					b.Fatal("a hook of the other entry is called")
				}
			}
		})
	}
}
