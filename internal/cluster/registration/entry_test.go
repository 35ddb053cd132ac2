package registration_test

import (
	"slices"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// edition is a configuration of one or no hook, as some dispatchers judge by it.
type edition struct {
	name string
	hook *match.Hook
}

// editions are the steps in which a hook becomes stricter and wider.
func editions(t *testing.T) []edition {
	t.Helper()
	all := []edition{{name: "without the hook"}}
	for name, h := range map[string]hook{
		"fail-open": {policy: "Ignore"}, "fail-closed": {}, "of one namespace": {namespace: "prod"}, "open of one namespace": {policy: "Ignore", namespace: "prod"},
		"with more rules": {rules: "CREATE,UPDATE::v1:pods"}, "exact": {exact: true},
	} {
		h.name = "a"
		if h.rules == "" {
			h.rules = "CREATE::v1:pods"
		}
		all = append(all, edition{name, hooks(t, h).Hooks()[0]})
	}
	return all
}

// entriesOf are the validating entries that were made of a hook and of two hooks that stay, with a failure policy each.
func entriesOf(t *testing.T, e edition) []match.Entry {
	t.Helper()
	others := []*match.Hook{
		hooks(t, hook{name: "closed", rules: "*::v1:*"}).Hooks()[0], hooks(t, hook{name: "open", policy: "Ignore", rules: "*::v1:*"}).Hooks()[0],
	}
	if e.hook != nil {
		others = append(others, e.hook)
	}
	return []match.Entry{match.NewEntry(match.EntryFailClosed, 1e9, others, nil), match.NewEntry(match.EntryFailOpen, 1e9, others, nil)}
}

// A request that both entries bring meets the hook, from whichever configuration the entries were made, and by whichever the two dispatchers
// judge that answer them: unless a dispatcher judges by a configuration without the hook.
func TestNoCombinationOfReplicasLeavesAHookOut(t *testing.T) {
	all := editions(t)
	for _, planned := range all {
		entries := entriesOf(t, planned)
		for _, first := range all {
			for _, second := range all {
				if first.hook == nil || second.hook == nil {
					continue
				}
				if !first.hook.In(entries[0]) && !second.hook.In(entries[1]) {
					t.Errorf("entries made from %q, closed judged by %q and open by %q: the hook is not called", planned.name, first.name, second.name)
				}
			}
		}
	}
}

// Until entries are made again a change costs calls, and no more than one.
func TestAHookIsCalledByOneEntryThatWasMadeFromItAndByEachThatWasNot(t *testing.T) {
	all := editions(t)
	for _, planned := range all {
		for _, now := range all {
			if now.hook == nil {
				continue
			}
			calls := len(slices.DeleteFunc(entriesOf(t, planned), func(e match.Entry) bool { return !now.hook.In(e) }))
			want := 2
			if planned.name == now.name {
				want = 1
			}
			if calls != want {
				t.Errorf("entries made from %q, judged by %q: %d calls, want %d", planned.name, now.name, calls, want)
			}
		}
	}
}

// The only entry of a cluster goes on calling the hook that it was made from, whatever becomes of its policy.
func TestAHookThatFailsClosedNowIsCalledByTheEntryOfBefore(t *testing.T) {
	before := plan(t, hooks(t, hook{name: "a", policy: "Ignore", rules: "CREATE::v1:pods"}), options())
	after := hooks(t, hook{name: "a", rules: "CREATE::v1:pods"}).Hooks()[0]
	entries := compile(t, match.Input{Objects: []match.Object{{Validating: before.Validating}}}).Hooks()
	if len(entries) != 1 || !after.In(entryOf(entries[0])) {
		t.Errorf("%d entries, and the hook is not called by %s", len(entries), *entries[0].ClientConfig.URL)
	}
}

func TestPlansDoNotDependOnOptionsThatMakeNoDifferenceToHooks(t *testing.T) {
	s := hooks(t, hook{name: "a", rules: "CREATE::v1:pods"})
	o := options()
	o.Name, o.OwnNamespace = "mesh-eu", ""
	url := func(r *registration.Registration) string { return *r.Validating.Webhooks[0].ClientConfig.URL }
	if a, b := url(plan(t, s, options())), url(plan(t, s, o)); a != b {
		t.Errorf("%s and %s", a, b)
	}
}
