package registration_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const reinvoke = admissionv1.Stage_STAGE_REINVOKE

// families are the ways to reach each resource.
type families [][]conversion.ResourceKind

// Families implements registration.Equivalents.
func (f families) Families() [][]conversion.ResourceKind { return f }

// ways reads "apps/v1,extensions/v1beta1 deployments/scale".
func ways(text string) []conversion.ResourceKind {
	versions, path, _ := strings.Cut(text, " ")
	resource, sub, _ := strings.Cut(path, "/")
	var all []conversion.ResourceKind
	for version := range strings.SplitSeq(versions, ",") {
		gv, _ := schema.ParseGroupVersion(version)
		all = append(all, conversion.ResourceKind{Resource: gv.WithResource(resource), Subresource: sub, Kind: gv.WithKind("Thing")})
	}
	return all
}

func familiesOf(texts ...string) families {
	var f families
	for _, text := range texts {
		f = append(f, ways(text))
	}
	return f
}

// serving is a cluster that serves families.
type serving struct {
	match.Unknown
	families families
}

// Equivalents implements match.Cluster.
func (s serving) Equivalents(r schema.GroupVersionResource, sub string) ([]conversion.ResourceKind, error) {
	for _, ways := range s.families {
		if slices.ContainsFunc(ways, func(w conversion.ResourceKind) bool { return w.Resource == r && w.Subresource == sub }) {
			return ways, nil
		}
	}
	return nil, nil
}

// Convert implements match.Cluster: an object has no content but its version and kind.
func (serving) Convert(_ context.Context, _ []byte, to schema.GroupVersionKind) ([]byte, error) {
	return object(to), nil
}

func object(kind schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q}`, kind.GroupVersion(), kind.Kind)
}

// request is the request of an API server when a client asks in one way and the entry sees it in another.
func request(operation, namespace string, asked, seen conversion.ResourceKind) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "u", Operation: operation, Name: "n", Namespace: namespace,
		Kind: messageKind(seen.Kind), Resource: messageResource(seen.Resource), SubResource: seen.Subresource,
		RequestKind: messageKind(asked.Kind), RequestResource: messageResource(asked.Resource), RequestSubResource: asked.Subresource,
		Object: &admissionv1.Object{Raw: object(seen.Kind)},
	}
}

func messageKind(k schema.GroupVersionKind) *admissionv1.GroupVersionKind {
	return &admissionv1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

func messageResource(r schema.GroupVersionResource) *admissionv1.GroupVersionResource {
	return &admissionv1.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// scene is hooks, the entries made of them, and a cluster as it is and as the mesh knows it.
type scene struct {
	t              *testing.T
	hooks, entries *match.Snapshot
	cluster        serving // as its API server knows itself
	mesh           serving // as the mesh knows it
	options        registration.Options
	// without are the hooks in a cluster where nothing always fails open, and other where other resources do.
	without, other *match.Snapshot
}

// asHooks are the entries of a registration, as hooks.
func asHooks(t *testing.T, r *registration.Registration) *match.Snapshot {
	t.Helper()
	return compile(t, match.Input{Objects: []match.Object{{Mutating: r.Mutating}, {Validating: r.Validating}}})
}

// versionedFailOpen are rules for served resources that always fail open.
func (g generator) versionedFailOpen() []admissionregistrationv1.RuleWithOperations {
	return g.failOpen([]string{"a", "a", "b", "*"}, []string{"things", "things", "things/scale", "things/*", "others", "*", "*/*", "*/scale"})
}

// call is a hook that was called, and the version in which it saw the request.
type call struct {
	hook string
	seen schema.GroupVersionKind
}

// seenBy are the hooks of a snapshot that match, with the way in which each sees the request.
func (s scene) seenBy(snapshot *match.Snapshot, stage admissionv1.Stage, r *admissionv1.AdmissionRequest, c match.Cluster, came conversion.ResourceKind,
) map[*match.Hook]conversion.ResourceKind {
	a := match.NewAttributes(r, c).Under(snapshot.Bypass("prod-1"))
	seen := map[*match.Hook]conversion.ResourceKind{}
	for _, h := range snapshot.Candidates("prod-1", stage, a) {
		d := h.ShouldCall(s.t.Context(), a)
		if d.Err != nil {
			s.t.Fatal(d.Err)
		}
		if !d.Match {
			continue
		}
		if seen[h] = came; d.As != nil {
			seen[h] = *d.As
		}
	}
	return seen
}

// native are the calls that the API server would make by itself.
func (s scene) native(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) map[call]int {
	calls := map[call]int{}
	for h, way := range s.seenBy(s.hooks, stage, request(operation, namespace, asked, asked), s.cluster, asked) {
		calls[call{h.ID.Configuration, way.Kind}]++
	}
	return calls
}

// called are the calls that the mesh makes for all entries that the API server calls, and the names of these.
func (s scene) called(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) (map[call]int, []string) {
	configured := stage
	if stage == reinvoke {
		configured = mutate
	}
	calls := map[call]int{}
	var names []string
	for e, way := range s.seenBy(s.entries, configured, request(operation, namespace, asked, asked), s.cluster, asked) {
		name, rest, _ := strings.Cut(e.ID.Name, ".")
		if !strings.HasPrefix(rest, stageNames[stage]) {
			continue
		}
		names = append(names, name)
		r := request(operation, namespace, asked, way)
		if !entryOf(e).Takes(match.NewAttributes(r, s.mesh).Under(s.hooks.Bypass("prod-1"))) {
			continue
		}
		for h, seen := range s.seenBy(s.hooks, stage, r, s.mesh, way) {
			if h.In(entryOf(e)) {
				calls[call{h.ID.Configuration, seen.Kind}]++
			}
		}
	}
	slices.Sort(names)
	return calls, names
}

// entryOf is how the mesh sees a webhook that registration has made.
func entryOf(e *match.Hook) match.Entry {
	_, path, _ := strings.Cut(*e.ClientConfig.URL, "/v1/clusters/")
	return match.ParseEntry(strings.SplitN(path, "/", 3)[2]) // behind cluster and stage
}

var stageNames = map[admissionv1.Stage]string{mutate: "mutate", reinvoke: "reinvoke", validate: "validate"}

// each calls f for every request that a client may send.
func (s scene) each(f func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind)) {
	for _, ways := range s.cluster.families {
		for _, asked := range ways {
			for stage := range stageNames {
				for _, operation := range []string{"CREATE", "UPDATE"} {
					for _, namespace := range []string{"", "default"} {
						f(stage, operation, namespace, asked)
					}
				}
			}
		}
	}
}

// wantEntries are the entries that have to see a request.
func (s scene) wantEntries(stage admissionv1.Stage, native map[call]int, asked conversion.ResourceKind) []string {
	var closed, open bool
	for _, h := range s.hooks.Hooks() {
		for c := range native {
			closed = closed || c.hook == h.ID.Configuration && h.FailsClosed()
			open = open || c.hook == h.ID.Configuration && !h.FailsClosed()
		}
	}
	var names []string
	switch {
	case closed && alwaysFailsOpen(s.hooks.Bypass("prod-1"), request("", "", asked, asked)):
		names = append(names, match.EntryAlwaysFailOpen)
	case closed:
		names = append(names, match.EntryFailClosed)
	}
	if open && (stage == validate || !closed) {
		names = append(names, match.EntryFailOpen)
	}
	return names
}

// times are the calls of each hook.
func times(calls map[call]int) map[string]int {
	hooks := map[string]int{}
	for c, n := range calls {
		hooks[c.hook] += n
	}
	return hooks
}

// served are the resources in the clusters of random scenes: now are served, more might be, and less were known before an
// upgrade.
func served() (now, more, less families) {
	now = familiesOf("a/v1,a/v2,b/v1 things", "b/v1,a/v1 things/scale", "a/v1,a/v2 others", "a/v1 singles", "b/v1 others")
	more = familiesOf("c/v1,a/v1,a/v2,a/v3,b/v1 things", "b/v1,a/v1,a/v2 things/scale", "a/v0,a/v1,a/v2 others", "a/v1,c/v1 singles", "b/v1 others")
	less = familiesOf("a/v1,b/v1 things", "a/v1 others", "a/v1 singles", "b/v1 others")
	return now, more, less
}

// versionedHooks are random hooks on served resources, of both match policies.
func (g generator) versionedHooks() []match.Object {
	var all []match.Object
	for i := range 1 + g.IntN(5) {
		h := hook{
			name: fmt.Sprintf("h%d", i), kind: g.pick("mutating", "mutating", "validating"), policy: g.pick("Fail", "Ignore"),
			reinvocation: g.pick("Never", "IfNeeded"), exact: g.IntN(2) == 0,
		}
		for range 1 + g.IntN(2) {
			h.rules += " " + fmt.Sprintf("%s:%s:%s:%s:%s",
				g.pick("*", "CREATE", "UPDATE"), g.pick("a", "a", "b", "b", "a,b", "c", "*"), g.pick("v1", "v1", "v2", "v1,v2", "v3", "*"),
				g.pick("things", "things", "things", "things,things/scale", "things/*", "others", "singles", "*", "*/*", "*/scale"),
				g.pick("*", "*", "*", "Cluster", "Namespaced"))
		}
		all = append(all, *h.document())
	}
	return all
}

// random plans random hooks by the known resources, and calls f for each scene.
func random(t *testing.T, known families, f func(s scene)) {
	t.Helper()
	rounds := citest.Rounds(20, 80, 800)
	now, _, _ := served()
	for seed := range uint64(rounds) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		o := options()
		o.OwnNamespace, o.Equivalents = "", known
		objects := g.versionedHooks()
		under := func(failOpen []admissionregistrationv1.RuleWithOperations) *match.Snapshot {
			return compile(t, match.Input{Objects: objects, Bypasses: map[string]*match.Bypass{"prod-1": {FailOpen: failOpen}}})
		}
		hooks := under(g.versionedFailOpen())
		r := plan(t, hooks, o)
		f(scene{
			t: t, hooks: hooks, cluster: serving{families: now}, mesh: serving{families: now}, options: o,
			entries: asHooks(t, r), without: under(nil), other: under(g.versionedFailOpen()),
		})
		if t.Failed() {
			var rules []string
			for _, h := range hooks.Hooks() {
				rules = append(rules, fmt.Sprint(h.ID.Configuration, h.ID.Stage, h.FailurePolicy, h.MatchPolicy, words(h.Rules())))
			}
			t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(rules, "\n"), text(t, r))
		}
	}
}

// TestHooksAreCalledAsTheAPIServerAloneWouldCallThem has a plan that knows the resources of the cluster. The entries together call
// each hook that kube-apiserver would have called, once, in the version that it asks for, and no other. Each sees the requests of
// its own policy alone, unless a hook names a version that is not served.
func TestHooksAreCalledAsTheAPIServerAloneWouldCallThem(t *testing.T) {
	now, _, _ := served()
	exact := 0
	random(t, now, func(s scene) {
		known := s.namesOnlyServed()
		if known {
			exact++
		}
		s.each(func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) {
			want := s.native(stage, operation, namespace, asked)
			got, names := s.called(stage, operation, namespace, asked)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("%v %s %s %q: calls (-alone +by entries %q):\n%s", stage, operation, asked, namespace, names, diff)
			}
			if diff := cmp.Diff(s.wantEntries(stage, want, asked), names); diff != "" && known {
				t.Errorf("%v %s %s %q: entries (-want +got):\n%s", stage, operation, asked, namespace, diff)
			}
		})
	})
	if exact == 0 {
		t.Error("every scene names what is not served")
	}
}

// namesOnlyServed reports whether the cluster serves every version that the hooks name of a resource.
func (s scene) namesOnlyServed() bool {
	for _, h := range s.hooks.Hooks() {
		for _, w := range words(h.Rules()) {
			fields := strings.Split(w, ":")
			for _, version := range strings.Split(fields[2], ",") {
				if version != "*" && slices.ContainsFunc(s.cluster.families, func(ways []conversion.ResourceKind) bool {
					return lacks(ways, strings.Split(fields[1], ","), version, strings.Split(fields[3], ","))
				}) {
					return false
				}
			}
		}
	}
	return true
}

// lacks reports whether a rule names a resource in a version that is not among its ways.
func lacks(ways []conversion.ResourceKind, groups []string, version string, resources []string) bool {
	return slices.ContainsFunc(ways, func(w conversion.ResourceKind) bool {
		named := slices.ContainsFunc(resources, func(r string) bool {
			name, sub, _ := strings.Cut(r, "/")
			return (name == "*" || name == w.Resource.Resource) && (sub == "*" || sub == w.Subresource)
		}) && (slices.Contains(groups, w.Resource.Group) || slices.Contains(groups, "*"))
		served := w
		served.Resource.Version, served.Kind.Version = version, version
		return named && !slices.Contains(ways, served)
	})
}

// TestNoHookIsPassedOverOrCalledTwiceByAPlanThatTakesTooMuchForTheSame is a plan for a cluster that cannot be asked, whose
// equivalents are all that it might serve.
func TestNoHookIsPassedOverOrCalledTwiceByAPlanThatTakesTooMuchForTheSame(t *testing.T) {
	_, more, _ := served()
	random(t, more, func(s scene) {
		s.each(func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) {
			s.mesh = s.cluster
			want := s.native(stage, operation, namespace, asked)
			if got, names := s.called(stage, operation, namespace, asked); !maps.Equal(times(want), times(got)) {
				t.Errorf("%v %s %s %q: alone %v, by entries %q %v", stage, operation, asked, namespace, want, names, got)
			}
			s.mesh = serving{families: more}
			got, names := s.called(stage, operation, namespace, asked)
			for h, n := range times(got) {
				if n > 1 {
					t.Errorf("%v %s %s %q: %s is called %d times by entries %q", stage, operation, asked, namespace, h, n, names)
				}
			}
			for h := range times(want) {
				if times(got)[h] == 0 {
					t.Errorf("%v %s %s %q: %s is not called by entries %q", stage, operation, asked, namespace, h, names)
				}
			}
		})
	})
}

// TestNoHookIsPassedOverByAPlanThatIsOlderThanTheCluster is a cluster that has learned to serve more.
func TestNoHookIsPassedOverByAPlanThatIsOlderThanTheCluster(t *testing.T) {
	_, _, less := served()
	random(t, less, func(s scene) {
		s.each(func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) {
			got, names := s.called(stage, operation, namespace, asked)
			for h := range times(s.native(stage, operation, namespace, asked)) {
				if times(got)[h] == 0 {
					t.Errorf("%v %s %s %q: %s is not called by entries %q", stage, operation, asked, namespace, h, names)
				}
			}
		})
	})
}
