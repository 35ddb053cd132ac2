package match_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// shown is all that can be seen of a snapshot.
func shown(t *testing.T, s *match.Snapshot) []string {
	t.Helper()
	var all []string
	for _, h := range s.Hooks() {
		text, err := json.Marshal([]any{
			h, h.Ordinal(), h.Path(".rules"), h.Rules(), h.NamespaceSelector(), h.ObjectSelector(), h.MatchConditions(),
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// TestWhatIsTakenFromTheLastSnapshotIsAsIfCompiledAnew changes a configuration again and again. Each snapshot must equal a snapshot that was compiled
// from nothing, whatever it took from the snapshot before, and stay so.
func TestWhatIsTakenFromTheLastSnapshotIsAsIfCompiledAnew(t *testing.T) {
	t.Parallel()
	for seed := range uint64(citest.Cases(8, 8, 80)) {
		r := newRandom(seed)
		w := changing{random: r, objects: map[string]match.Object{}, routes: map[string]match.RouteBinding{}}
		var last *match.Snapshot
		var before []string
		for step := range 50 {
			w.change()
			in := w.input()
			anew, want := match.Compile(in)
			in.Last = last
			made, got := match.Compile(in)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, step %d: findings (-anew +got):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff(shown(t, anew), shown(t, made)); diff != "" {
				t.Fatalf("seed %d, step %d: (-anew +got):\n%s", seed, step, diff)
			}
			if last != nil {
				if diff := cmp.Diff(before, shown(t, last)); diff != "" {
					t.Fatalf("seed %d, step %d: the snapshot before has changed (-was +is):\n%s", seed, step, diff)
				}
			}
			for range 5 {
				w.candidates(t, made, anew)
			}
			last, before = made, shown(t, made)
		}
	}
}

// changing is a configuration that changes. Documents are kept by where they are read from.
type changing struct {
	random

	objects map[string]match.Object
	routes  map[string]match.RouteBinding
}

// change changes one document, its pending hooks or its source.
func (w *changing) change() {
	source := fmt.Sprint("file", w.IntN(8))
	o, known := w.objects[source]
	switch what := w.IntN(9); {
	case what < 3:
		w.route(fmt.Sprint("file", w.IntN(3)))
	case !known || what < 5:
		w.objects[source] = w.object(source)
	case what == 5:
		delete(w.objects, source)
	case what < 8:
		o.Pending = nil
		if w.maybe(2) {
			o.Pending = some(w.random, "a", "b", "c")
		}
		w.objects[source] = o
	default: // it is read from another place
		delete(w.objects, source)
		o.Source += "x"
		w.objects[source] = o
	}
}

// object has a name that another document may have too.
func (w *changing) object(source string) match.Object {
	o := match.Object{Source: source, Scope: pick(w.random, "", "", "", "one")}
	meta := metav1.ObjectMeta{Name: pick(w.random, "x", "y", "z")}
	var hooks []admissionregistrationv1.MutatingWebhook
	for range 1 + w.IntN(3) {
		hook := w.webhook(pick(w.random, "a", "b", "c"))
		if w.maybe(2) {
			hook.ClientConfig = webhookURL()
		}
		if w.maybe(6) {
			hook.MatchConditions = []admissionregistrationv1.MatchCondition{
				{Name: "c", Expression: pick(w.random, "true", "syntax error", `authorizer.path("/open").check("get").allowed()`)},
			}
		}
		hooks = append(hooks, hook)
	}
	if w.maybe(2) {
		o.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: hooks}
		o.Initializes = w.maybe(2)
	} else {
		o.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
		for _, h := range hooks {
			o.Validating.Webhooks = append(o.Validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
				NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, MatchConditions: h.MatchConditions,
			})
		}
	}
	if !w.maybe(6) {
		o.Digest = digestOf([]any{o.Mutating, o.Validating})
	}
	return o
}

// route puts a route there, or takes one away.
func (w *changing) route(source string) {
	if _, ok := w.routes[source]; ok && w.maybe(2) {
		delete(w.routes, source)
		return
	}
	b := match.RouteBinding{
		Name: pick(w.random, "r", "s"), Source: source, Configuration: pick(w.random, "x", "x", "y", "none"), Hook: pick(w.random, "", "", "a"),
		Stage: pick(w.random, 0, 0, mutate, validate, initialize),
		Route: match.Route{
			Stream: w.maybe(2), Hosts: pick(w.random, nil, []string{"h"}), Authorities: pick(w.random, nil, []string{"x"}, []string{"y"}), Shadow: w.maybe(4), Speculate: w.maybe(4), Immediate: w.maybe(4),
			Clusters: pick(w.random, nil, nil, []string{"one"}, []string{"two"}),
			After:    pick(w.random, nil, nil, []string{"a"}, []string{"c"}), Before: pick(w.random, nil, nil, nil, []string{"a", "b"}),
		},
	}
	if !w.maybe(6) {
		b.Digest = digestOf(b)
	}
	w.routes[source] = b
}

func digestOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (w *changing) input() match.Input {
	in := match.Input{Revision: "r"}
	for _, source := range slices.Sorted(maps.Keys(w.objects)) {
		in.Objects = append(in.Objects, w.objects[source])
	}
	for _, source := range slices.Sorted(maps.Keys(w.routes)) {
		in.Routes = append(in.Routes, w.routes[source])
	}
	return in
}

// candidates compares whom two snapshots would ask about a request.
func (w *changing) candidates(t *testing.T, made, anew *match.Snapshot) {
	t.Helper()
	a := match.NewAttributes(w.request(), match.Unknown{})
	stage := pick(w.random, mutate, validate, reinvoke)
	ordinals := func(s *match.Snapshot) (found []int) {
		for _, h := range s.Candidates("one", stage, a) {
			if s.Hooks()[h.Ordinal()] != h {
				t.Errorf("hook %v is of another snapshot", h.ID)
			}
			found = append(found, h.Ordinal())
		}
		return found
	}
	if diff := cmp.Diff(ordinals(anew), ordinals(made)); diff != "" {
		t.Errorf("candidates (-anew +got):\n%s", diff)
	}
}

// TestAChangeOfOneObjectLeavesTheOthersAsTheyAre looks whether anything is taken from the last snapshot at all.
func TestAChangeOfOneObjectLeavesTheOthersAsTheyAre(t *testing.T) {
	t.Parallel()
	objects := []match.Object{validating("", "a", "a1", "a2"), validating("", "b", "b1"), validating("", "c", "c1", "c2")}
	for i := range objects {
		objects[i].Digest = fmt.Sprint(i)
	}
	first := compile(t, match.Input{Objects: objects})
	objects[1] = validating("", "b", "b1", "b2")
	objects[1].Digest = "other"
	second := compile(t, match.Input{Objects: objects, Last: first})
	if a, b := first.Hooks()[:2], second.Hooks()[:2]; !slices.Equal(a, b) {
		t.Error("hooks that are as they were, where they were, are compiled again")
	}
	objects[2].Source = "elsewhere"
	third := compile(t, match.Input{Objects: objects, Last: second})
	if a, b := second.Hooks()[:4], third.Hooks()[:4]; !slices.Equal(a, b) || second.Hooks()[4] == third.Hooks()[4] {
		t.Error("an object that is read from another place is not the only one that is compiled again")
	}
}

// TestWhatIsNotKnownToSayTheSameIsCompiledAgain changes documents without digests.
func TestWhatIsNotKnownToSayTheSameIsCompiledAgain(t *testing.T) {
	t.Parallel()
	o := validating("", "a", "one")
	first := compile(t, match.Input{Objects: []match.Object{o}})
	other := compile(t, match.Input{Objects: []match.Object{validating("", "a", "two")}, Last: first})
	if name := other.Hooks()[0].ID.Name; name != "two" {
		t.Errorf("the hook is %q still", name)
	}
	o.Digest = "known"
	route := match.RouteBinding{Name: "r", Configuration: "a", Route: match.Route{Timeout: time.Second}}
	first = compile(t, match.Input{Objects: []match.Object{o}, Routes: []match.RouteBinding{route}})
	route.Route.Timeout = time.Minute
	other = compile(t, match.Input{Objects: []match.Object{o}, Routes: []match.RouteBinding{route}, Last: first})
	if got := other.Hooks()[0].Timeout; got != time.Minute {
		t.Errorf("the timeout is %s still", got)
	}
}

// TestASnapshotKeepsNothingOfTheOneBeforeItButWhatHasNotChanged: of configurations that change forever, memory must not grow.
func TestASnapshotKeepsNothingOfTheOneBeforeItButWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	step := func(last *match.Snapshot, digest string) (*match.Snapshot, weak.Pointer[match.RouteBinding]) {
		objects := []match.Object{validating("", "a", "a1"), validating("", "b", "b1")}
		objects[0].Digest, objects[1].Digest = "always", digest
		routes := []match.RouteBinding{{Name: "r", Configuration: "a", Digest: "d"}}
		return compile(t, match.Input{Objects: objects, Routes: routes, Last: last}), weak.Make(&routes[0])
	}
	first, routes := step(nil, "1")
	second, _ := step(first, "2")
	if first.Hooks()[0] != second.Hooks()[0] {
		t.Error("nothing was taken over")
	}
	gone := weak.Make(first)
	runtime.GC()
	if gone.Value() != nil || routes.Value() != nil {
		t.Errorf("the first snapshot is kept: %t, its routes: %t", gone.Value() != nil, routes.Value() != nil)
	}
	runtime.KeepAlive(second)
}
