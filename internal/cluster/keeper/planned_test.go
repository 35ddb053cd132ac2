package keeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// TestEntriesLackAHookUntilEachAPIServerCallsByThem plays the reads of a cluster's entries by a dispatcher.
func TestEntriesLackAHookUntilEachAPIServerCallsByThem(t *testing.T) {
	one, two := snapshotOf(t, "a"), snapshotOf(t, "a", "b")
	wider := snapshotOf(t, "a/pods+configmaps", "b")
	var p planned
	now := time.Unix(1000, 0)
	read := func(generation int64, made *match.Snapshot, again bool) {
		v := entriesFor(t, made)
		v.Generation = generation
		if again {
			v.Annotations[touch.Annotation] = touch.Mark(v)
		}
		p.see("east", registration.Objects{Validating: v}, now)
	}
	lacks := func(step string, of *match.Snapshot, want ...string) {
		t.Helper()
		var got []string
		for _, h := range p.lacking(of, "east") {
			got = append(got, h.ID.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the entries lack %q, want %q", step, got, want)
		}
	}

	lacks("nothing was read", two, "a.example.com", "b.example.com")
	read(1, one, false)
	lacks("they were just made", one, "a.example.com")
	now = now.Add(touch.Delay)
	read(1, one, true)
	lacks("they were written once more", one)
	lacks("a hook is new", two, "b.example.com")
	read(2, two, false)
	lacks("they have it, and an API server may have missed that", two, "b.example.com")
	read(3, wider, false)
	lacks("the other one has wider rules", wider, "a.example.com", "b.example.com")
	read(3, wider, true)
	lacks("they were written once more after both changes", wider)

	read(4, two, false)
	now = now.Add(settled - 1)
	read(4, two, false)
	lacks("the annotation does not stay", two, "a.example.com")
	now = now.Add(1)
	read(4, two, false)
	lacks("it does not stay for long", two)

	for generation := range int64(3 * maxPlans) {
		read(5+generation, []*match.Snapshot{one, two}[generation%2], false)
	}
	if n := len(p.validating.all); n > maxPlans+1 {
		t.Errorf("%d plans are remembered of many changes", n)
	}
	lacks("many changes", two, "a.example.com", "b.example.com")
	read(100, two, true)
	lacks("many changes, and they were written once more", two)
	p.see("east", registration.Objects{}, now)
	lacks("they are gone", two, "a.example.com", "b.example.com")
}

// TestEntriesLackAnInitializerUntilTheMutatingOnesBringIt has an initializer and no mutating hook.
func TestEntriesLackAnInitializerUntilTheMutatingOnesBringIt(t *testing.T) {
	objects, problems := configtest.Decode("initializers.yaml", []byte("apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\n"+
		"metadata: {name: i}\ninitializers: [{name: a.example.com, rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}]\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("one", objects)
	plan, err := registration.Plan(snapshot, "east", registration.Options{URL: "https://mesh.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Mutating.Webhooks) != 1 || len(plan.Validating.Webhooks) != 0 {
		t.Fatalf("%d mutating and %d validating entries", len(plan.Mutating.Webhooks), len(plan.Validating.Webhooks))
	}
	plan.Mutating.UID, plan.Mutating.Generation = types.UID("u"), 1
	var p planned
	now := time.Unix(1000, 0)
	p.see("east", registration.Objects{Validating: plan.Validating}, now)
	if got := p.lacking(snapshot, "east"); len(got) != 1 || got[0].ID.Name != "a.example.com" {
		t.Errorf("validating entries alone lack %v", got)
	}
	plan.Mutating.Annotations[touch.Annotation] = touch.Mark(plan.Mutating)
	p.see("east", plan.Objects, now)
	if got := p.lacking(snapshot, "east"); len(got) != 0 {
		t.Errorf("the mutating entries lack %v", got)
	}
}

// snapshotOf has a validating hook for each name; behind a slash are its resources.
func snapshotOf(t *testing.T, hooks ...string) *match.Snapshot {
	t.Helper()
	var text strings.Builder
	text.WriteString("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: p}\nwebhooks:\n")
	for _, h := range hooks {
		name, resources, _ := strings.Cut(h, "/")
		if resources == "" {
			resources = "pods"
		}
		fmt.Fprintf(&text, "- {name: %s.example.com, clientConfig: {}, sideEffects: None, admissionReviewVersions: [v1], rules: [{apiGroups: [''], "+
			"apiVersions: [v1], operations: [CREATE], resources: [%s]}]}\n", name, strings.ReplaceAll(resources, "+", ", "))
	}
	objects, problems := configtest.Decode("hooks.yaml", []byte(text.String()))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	s, _ := config.Compile("one", objects)
	return s
}

// entriesFor are the validating entries that registration makes.
func entriesFor(t *testing.T, s *match.Snapshot) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	plan, err := registration.Plan(s, "east", registration.Options{URL: "https://mesh.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	v := plan.Validating
	v.UID = types.UID("u")
	return v
}
