package registration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const (
	notKubeSystem = `request.namespace != "kube-system"`
	sharedNotKube = `!has(request.namespace) || (request.namespace != "kube-system")`
)

// shared are the conditions that entries have of their hooks, by entry.
func shared(r *registration.Registration) map[string][]string {
	all := map[string][]string{}
	add := func(name string, conditions []admissionregistrationv1.MatchCondition) {
		for _, c := range conditions {
			if strings.HasPrefix(c.Name, "shared-") {
				all[name] = append(all[name], c.Expression)
			}
		}
	}
	for _, w := range r.Mutating.Webhooks {
		add(w.Name, w.MatchConditions)
	}
	for _, w := range r.Validating.Webhooks {
		add(w.Name, w.MatchConditions)
	}
	return all
}

func TestEntriesHaveTheConditionsThatAllOfTheirHooksShare(t *testing.T) {
	const pods, closed, open = "CREATE::v1:pods", "fail-closed.validate.portcullis", "fail-open.validate.portcullis"
	for name, tt := range map[string]struct {
		hooks []hook
		want  map[string][]string
	}{
		"one hook": {[]hook{{name: "a", rules: pods, conditions: []string{notKubeSystem}}}, map[string][]string{closed: {sharedNotKube}}},
		"parts of conditions that differ": {[]hook{
			{name: "a", rules: pods, conditions: []string{notKubeSystem + ` && has(object.spec)`}},
			{name: "b", rules: pods, conditions: []string{`request.operation == "CREATE"`, `request.namespace!='kube-system'`}},
		}, map[string][]string{closed: {sharedNotKube}}},
		"a hook without": {[]hook{{name: "a", rules: pods, conditions: []string{notKubeSystem}}, {name: "b", rules: pods}}, nil},
		"a hook of the other entry without": {[]hook{
			{name: "a", rules: pods, conditions: []string{notKubeSystem}}, {name: "b", rules: pods, policy: "Ignore"},
		}, map[string][]string{closed: {sharedNotKube}}},
		"fail-open hooks alone": {[]hook{
			{name: "a", rules: pods}, {name: "b", rules: pods, policy: "Ignore", conditions: []string{notKubeSystem}},
		}, map[string][]string{open: {sharedNotKube}}},
		"a mutating hook of the chain without": {[]hook{
			{kind: "mutating", name: "a", rules: pods, conditions: []string{notKubeSystem}},
			{kind: "mutating", name: "b", rules: pods, policy: "Ignore"},
		}, nil},
		"the whole chain": {[]hook{
			{kind: "mutating", name: "a", rules: pods, conditions: []string{notKubeSystem}},
			{kind: "mutating", name: "b", rules: pods, policy: "Ignore", conditions: []string{notKubeSystem}},
		}, map[string][]string{"fail-closed.mutate.portcullis": {sharedNotKube}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, shared(plan(t, hooks(t, tt.hooks...), options())), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("shared conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// The entry of a wildcard has five conditions of its own, and Kubernetes accepts 64.
func TestAnEntryHasAsManyConditionsAsThereIsRoomFor(t *testing.T) {
	count := func(n, length int) (all, ofHooks int) {
		h := hook{name: "a", rules: "CREATE:*:v1:*"}
		for i := range n {
			h.conditions = append(h.conditions, fmt.Sprintf("request.operation != %q", fmt.Sprintf("%0*d", length, i)))
		}
		r := plan(t, hooks(t, h), options())
		return len(r.Validating.Webhooks[0].MatchConditions), len(shared(r)["fail-closed.validate.portcullis"])
	}
	for _, tt := range []struct{ n, length, all, ofHooks int }{
		{59, 8, 64, 59},
		{60, 8, 64, 59},
		{16, 512 - len(`request.operation != ""`), 21, 16}, // 8 KiB
		{17, 512 - len(`request.operation != ""`), 21, 16},
	} {
		if all, ofHooks := count(tt.n, tt.length); all != tt.all || ofHooks != tt.ofHooks {
			t.Errorf("%d conditions of %d bytes: %d of %d, want %d of %d", tt.n, tt.length, ofHooks, all, tt.ofHooks, tt.all)
		}
	}
}
