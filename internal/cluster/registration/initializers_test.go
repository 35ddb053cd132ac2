package registration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

func TestInitializersWidenTheMutatingEntries(t *testing.T) {
	closed := hook{kind: "initializing", name: "closed", rules: "CREATE::v1:pods"}
	open := hook{kind: "initializing", name: "open", policy: "Ignore", rules: "CREATE:apps:v1:deployments"}
	mutates := hook{kind: "mutating", name: "m", rules: "UPDATE::v1:services"}
	got := entries(plan(t, hooks(t, closed, open, mutates), options()))
	want := map[string][]string{
		"fail-closed.mutate.portcullis": {"CREATE::v1:pods:*", "UPDATE::v1:services:*"},
		"fail-open.mutate.portcullis":   {"CREATE:apps:v1:deployments:*"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got := entries(plan(t, hooks(t, mutates), options())); len(got) != 1 {
		t.Errorf("entries %q without initializers", got)
	}
}

// TestEntriesDriftWithInitializers holds entries against a changed configuration.
func TestEntriesDriftWithInitializers(t *testing.T) {
	closed := hook{kind: "initializing", name: "a", rules: "CREATE::v1:pods"}
	made := plan(t, hooks(t, closed), options())
	entry := entryOf(compile(t, match.Input{Objects: []match.Object{{Mutating: made.Mutating}}}).Hooks()[0])
	if d := hooks(t, closed).Drift("prod-1", entry); d.Any() {
		t.Errorf("drift %+v, want none", d)
	}
	for name, changed := range map[string]hook{
		"another policy":   {kind: "initializing", name: "a", policy: "Ignore", rules: "CREATE::v1:pods"},
		"other rules":      {kind: "initializing", name: "a", rules: "CREATE::v1:pods,services"},
		"a mutating hook":  {kind: "mutating", name: "a", exact: true, reinvocation: "Never", rules: "CREATE::v1:pods"},
		"another name":     {kind: "initializing", name: "b", rules: "CREATE::v1:pods"},
		"a longer timeout": {kind: "initializing", name: "a", timeout: 5, rules: "CREATE::v1:pods"},
	} {
		d := hooks(t, changed).Drift("prod-1", entry)
		if want := name != "a longer timeout"; d.Any() != want || want && (len(d.Unplanned) != 1 || d.Gone != 1) {
			t.Errorf("%s: drift %+v, want %v", name, d, want)
		}
	}
}
