package registration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
)

// TestEntriesSeeWhatTheirHooksSeeAndNothingElse asks our own matching, which is held to kube-apiserver's elsewhere, about
// the entries of random hooks as if they were hooks. Resources that are the same in several versions are for other tests.
func TestEntriesSeeWhatTheirHooksSeeAndNothingElse(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		hooks := compile(t, match.Input{Objects: g.objects()})
		r := plan(t, hooks, options())
		entries := compile(t, match.Input{Objects: []match.Object{{Mutating: r.Mutating}, {Validating: r.Validating}}})
		for range 40 {
			w := world{t: t, hooks: hooks, entries: entries, request: g.request()}
			w.check()
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, text(t, r))
		}
	}
}

// world is one request among hooks and the entries made of them.
type world struct {
	t              *testing.T
	hooks, entries *match.Snapshot
	request        *admissionv1.AdmissionRequest
}

func (w world) check() {
	kept := !excluded(w.request) && w.request.GetNamespace() != "portcullis-system"
	for _, stage := range []admissionv1.Stage{mutate, validate} {
		covering := w.hooks.Candidates("prod-1", stage, match.NewAttributes(w.request, namespaces{}))
		matching := w.matching(w.hooks, stage)
		closed := kept && slices.ContainsFunc(matching, failsClosed)
		open := kept && slices.ContainsFunc(matching, failsOpen)
		if stage == mutate {
			// The whole chain runs in one entry, and the policy is that of the hooks whose rules cover the request.
			closed, open = kept && len(matching) > 0 && slices.ContainsFunc(covering, failsClosed),
				kept && len(matching) > 0 && !slices.ContainsFunc(covering, failsClosed)
		}
		w.see(stage, match.EntryFailClosed, closed, kept && slices.ContainsFunc(covering, failsClosed))
		w.see(stage, match.EntryFailOpen, open, kept && slices.ContainsFunc(covering, failsOpen) &&
			(stage == validate || !slices.ContainsFunc(covering, failsClosed)))
	}
}

// see checks an entry: it has to see the request if must, and may not unless may.
func (w world) see(stage admissionv1.Stage, name string, must, may bool) {
	saw := slices.ContainsFunc(w.matching(w.entries, stage), func(h *match.Hook) bool {
		return h.ID.Name == fmt.Sprintf("%s.%s.portcullis", name, map[admissionv1.Stage]string{mutate: "mutate", validate: "validate"}[stage])
	})
	if must && !saw || saw && !may {
		w.t.Errorf("entry %s of %v sees the request: %v; it must: %v, it may: %v\n%v", name, stage, saw, must, may, w.request)
	}
}

func (w world) matching(s *match.Snapshot, stage admissionv1.Stage) []*match.Hook {
	a := match.NewAttributes(w.request, namespaces{})
	return slices.DeleteFunc(s.Candidates("prod-1", stage, a), func(h *match.Hook) bool {
		d := h.Matches(w.t.Context(), a)
		if d.Err != nil {
			w.t.Fatal(d.Err)
		}
		return !d.Match
	})
}

func failsClosed(h *match.Hook) bool { return h.FailurePolicy == admissionregistrationv1.Fail }
func failsOpen(h *match.Hook) bool   { return !h.FailsClosed() }

// excluded says it again, in the words of a request.
func excluded(r *admissionv1.AdmissionRequest) bool {
	return r.GetResource().GetGroup() == "authentication.k8s.io" && r.GetResource().GetResource() == "tokenreviews"
}

// generator makes configurations and requests of few words, so that they meet.
type generator struct{ *rand.Rand }

func (g generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g generator) objects() []match.Object {
	var all []match.Object
	for i := range 2 + g.IntN(4) {
		h := hook{
			name: fmt.Sprintf("h%d", i), kind: g.pick("mutating", "validating"), policy: g.pick("Fail", "Ignore"),
			reinvocation: g.pick("Never", "IfNeeded"), namespace: g.pick("", "", "", "default"), exact: true,
		}
		for range 1 + g.IntN(3) {
			h.rules += " " + g.rule()
		}
		all = append(all, *h.document())
	}
	return all
}

func (g generator) rule() string {
	return fmt.Sprintf("%s:%s:%s:%s:%s",
		g.pick("*", "CREATE", "UPDATE", "CREATE,UPDATE"),
		g.pick("*", "", "apps", ",apps", "coordination.k8s.io,authentication.k8s.io"),
		g.pick("*", "v1", "v1", "v1beta1"),
		g.pick("*", "*/*", "*/status", "pods/*", "pods", "pods,pods/status", "leases,tokenreviews,pods", "leases", "events,pods", "namespaces"),
		g.pick("*", "*", "Cluster", "Namespaced"))
}

func (g generator) request() *admissionv1.AdmissionRequest {
	r := &admissionv1.AdmissionRequest{
		Uid:       "u",
		Kind:      &admissionv1.GroupVersionKind{Version: "v1", Kind: "Thing"},
		Operation: g.pick("CREATE", "UPDATE", "UPDATE", "DELETE"),
		Resource: &admissionv1.GroupVersionResource{
			Group:    g.pick("", "", "apps", "coordination.k8s.io", "authentication.k8s.io"),
			Version:  g.pick("v1", "v1", "v1beta1"),
			Resource: g.pick("pods", "pods", "leases", "events", "namespaces", "tokenreviews"),
		},
		SubResource: g.pick("", "", "status", "exec"),
		Name:        "n",
		Namespace:   g.pick("", "default", "other", "portcullis-system"),
	}
	if r.GetResource().GetResource() == "namespaces" {
		r.Namespace = g.pick("default", "other", "portcullis-system")
		r.Name = r.GetNamespace()
	}
	if r.GetOperation() != "DELETE" {
		r.Object = &admissionv1.Object{Raw: []byte(`{"metadata":{"labels":{"kubernetes.io/metadata.name":"` + r.GetNamespace() + `"}}}`)}
	}
	return r
}
