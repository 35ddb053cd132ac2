package registration_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
)

// TestEntriesSeeWhatTheirHooksSeeAndNothingElse asks our own matching, which is held to kube-apiserver's elsewhere, about
// the entries of random hooks as if they were hooks. Resources that are the same in several versions are for other tests.
func TestEntriesSeeWhatTheirHooksSeeAndNothingElse(t *testing.T) {
	for seed := range uint64(citest.Rounds(30, 300, 3000)) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		hooks := compile(t, match.Input{Objects: g.objects(), Bypasses: map[string]*match.Bypass{"prod-1": g.bypass()}})
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
	exempt, _ := w.exempt()
	kept := !excluded(w.request) && w.request.GetNamespace() != "portcullis-system" && exempt == ""
	for _, stage := range []admissionv1.Stage{mutate, validate} {
		covering := w.hooks.Candidates("prod-1", stage, match.NewAttributes(w.request, namespaces{}))
		matching := w.matching(w.hooks, stage)
		closed := kept && slices.ContainsFunc(matching, failsClosed)
		open := kept && slices.ContainsFunc(matching, failsOpen)
		mayOpen := kept && slices.ContainsFunc(covering, failsOpen)
		if stage == mutate {
			// The whole chain runs in one entry. It fails closed if a fail-closed hook selects the request, and not unless the rules of one cover it.
			open = kept && len(matching) > 0 && !slices.ContainsFunc(covering, failsClosed)
			// An entry for other namespaces may have the rules of a fail-closed hook, which are wider than the rules of its own hooks.
			mayOpen = kept && len(covering) > 0 && !slices.ContainsFunc(matching, failsClosed)
			reinvokes := func(h *match.Hook) bool { return strings.Contains(h.ID.Name, ".reinvoke") }
			if n := len(slices.DeleteFunc(w.matching(w.entries, stage), reinvokes)); n > 1 || n == 0 && kept && len(matching) > 0 {
				w.t.Errorf("%d entries of %v see the request\n%v", n, stage, w.request)
			}
		}
		always, mayClosed := alwaysFailsOpen(w.hooks.Bypass("prod-1"), w.request), kept && slices.ContainsFunc(covering, failsClosed)
		w.see(stage, match.EntryFailClosed, closed && !always, mayClosed && !always)
		w.see(stage, match.EntryAlwaysFailOpen, closed && always, mayClosed && always)
		w.see(stage, match.EntryFailOpen, open, mayOpen)
	}
}

// exempt returns the bypass that exempts the request; empty for none.
func (w world) exempt() (by, name string) { return w.hooks.Bypass("prod-1").Of(w.request, time.Now()) }

// see checks the entries of a name, which are several where fail-closed hooks differ: one has to see the request if must, and none may unless may.
func (w world) see(stage admissionv1.Stage, name string, must, may bool) {
	entry := regexp.MustCompile(fmt.Sprintf(`^%s\.%s(-\d+)?\.portcullis$`, name, map[admissionv1.Stage]string{mutate: "mutate", validate: "validate"}[stage]))
	saw := slices.ContainsFunc(w.matching(w.entries, stage), func(h *match.Hook) bool { return entry.MatchString(h.ID.Name) })
	if name != match.EntryFailClosed && slices.ContainsFunc(w.matching(w.entries, stage), func(h *match.Hook) bool {
		return strings.HasPrefix(h.ID.Name, name+".") && h.FailsClosed()
	}) {
		w.t.Errorf("entry %s of %v fails closed", name, stage)
	}
	if must && !saw || saw && !may {
		w.t.Errorf("entry %s of %v sees the request: %v; it must: %v, it may: %v\n%v", name, stage, saw, must, may, w.request)
	}
}

func (w world) matching(s *match.Snapshot, stage admissionv1.Stage) []*match.Hook {
	a := match.NewAttributes(w.request, namespaces{})
	return slices.DeleteFunc(s.Candidates("prod-1", stage, a), func(h *match.Hook) bool {
		d := h.ShouldCall(w.t.Context(), a)
		if d.Err != nil && s == w.entries {
			w.t.Fatal(d.Err)
		}
		return !d.Match && d.Err == nil // a condition that fails refuses the request
	})
}

// alwaysFailsOpen is a second implementation of match.Bypass.FailOpen for a request.
func alwaysFailsOpen(b *match.Bypass, r *admissionv1.AdmissionRequest) bool {
	if b == nil {
		return false
	}
	group, resource := r.GetResource().GetGroup(), r.GetResource().GetResource()
	if asked := r.GetRequestResource(); asked != nil {
		group, resource = asked.GetGroup(), asked.GetResource()
	}
	return slices.ContainsFunc(b.FailOpen, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIGroups, group)) &&
			slices.ContainsFunc(rule.Resources, func(name string) bool {
				res, sub, _ := strings.Cut(name, "/")
				named := res == resource || res == "*" && !(resource == "leases" && group == "coordination.k8s.io") && !(resource == "events" && group == "")
				return named && (sub == "*" || sub == r.GetSubResource())
			})
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
			name: fmt.Sprintf("h%d", i), kind: g.pick("mutating", "validating", "initializing"), policy: g.pick("Fail", "Ignore"),
			reinvocation: g.pick("Never", "IfNeeded"), namespace: g.pick("", "", "", "default"), exact: true,
		}
		for range 1 + g.IntN(3) {
			h.rules += " " + g.rule()
		}
		for range g.IntN(3) {
			h.conditions = append(h.conditions, g.pick(conditions()[:2]...), g.pick(conditions()...))
		}
		all = append(all, *h.document())
	}
	return all
}

// conditions are some that entries can have, and some that fail for some requests, or for all.
func conditions() []string {
	return []string{
		`request.namespace != "default"`, `request.namespace != "default" && request.operation != "DELETE"`,
		`!("ops" in request.userInfo.groups)`, `request.userInfo.groups[1] != "ops"`, `request.subResource != "status"`,
		`request.resource.resource in ["pods", "namespaces"] ? request.name == "n" : has(request.namespace)`, `int(request.name) > 0`,
	}
}

// bypass is the bypass of the cluster, in half of the cases.
func (g generator) bypass() *match.Bypass {
	if g.IntN(2) == 0 {
		return nil
	}
	some := func(names ...string) []string { return names[:g.IntN(len(names)+1)] }
	return &match.Bypass{
		Namespaces: some("other", "default"), Users: some("bob", `a"b\c`), Groups: some("ops", "dev"),
		FailOpen: g.failOpen([]string{"*", "", "apps", "coordination.k8s.io"}, []string{"*", "*/*", "*/status", "pods/*", "pods", "leases", "leases", "events"}),
	}
}

// failOpen is some resources that always fail open; none in some cases.
func (g generator) failOpen(groups, resources []string) []admissionregistrationv1.RuleWithOperations {
	var all []admissionregistrationv1.RuleWithOperations
	for range g.IntN(3) {
		all = append(all, rule(fmt.Sprintf("*:%s,%s:*:%s,%s", g.pick(groups...), g.pick(groups...), g.pick(resources...), g.pick(resources...))))
	}
	return all
}

func (g generator) user() *admissionv1.UserInfo {
	u := &admissionv1.UserInfo{Username: g.pick("", "alice", "bob", `a"b\c`)}
	for range g.IntN(3) {
		u.Groups = append(u.Groups, g.pick("ops", "dev", "sales"))
	}
	return u
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
		UserInfo:    g.user(),
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
