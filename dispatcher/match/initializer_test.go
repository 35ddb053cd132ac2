package match_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const initialize = admissionv1.Stage_STAGE_INITIALIZE

// initializing is an InitializerConfiguration whose initializers act on everything that is created.
func initializing(name string, initializers ...string) match.Object {
	o := mutating("", name, initializers...)
	o.Initializes, o.Source = true, name+".init.yaml"
	for i := range o.Mutating.Webhooks {
		w := &o.Mutating.Webhooks[i]
		none := admissionregistrationv1.SideEffectClassNone
		w.Rules, w.ClientConfig, w.SideEffects = rule("CREATE", "*", "*", "*"), admissionregistrationv1.WebhookClientConfig{}, &none
	}
	return o
}

// controlled grants a controller the hooks of configurations.
func controlled(configurations ...string) (routes []match.RouteBinding) {
	for _, c := range configurations {
		routes = append(routes, match.RouteBinding{Name: c, Configuration: c, Stage: initialize, Route: match.Route{Hosts: []string{"controller"}}})
	}
	return routes
}

// called are the names of the candidates for a request.
func called(s *match.Snapshot, stage admissionv1.Stage, req *admissionv1.AdmissionRequest) []string {
	names := []string{}
	for _, h := range s.Candidates("c", stage, match.NewAttributes(req, namespaces{})) {
		names = append(names, h.ID.Name)
	}
	return names
}

func TestInitializersComeFirstInTheOrderOfTheirConfigurations(t *testing.T) {
	s := compile(t, match.Input{
		Objects: []match.Object{
			mutating("", "a", "mutating.a.io"), initializing("b", "2.b.io", "1.b.io"), initializing("a", "4.a.io", "3.a.io"),
			mutating("", "0", "mutating.0.io"), validating("", "a", "validating.a.io"),
		},
		Routes: controlled("a", "b"),
	})
	want := []string{"4.a.io", "3.a.io", "2.b.io", "1.b.io", "mutating.0.io", "mutating.a.io"}
	if diff := cmp.Diff(want, called(s, mutate, createPod())); diff != "" {
		t.Errorf("hooks of a CREATE (-want +got):\n%s", diff)
	}
	want = []string{"validating.a.io"}
	if diff := cmp.Diff(want, called(s, validate, createPod())); diff != "" {
		t.Errorf("validating hooks of a CREATE (-want +got):\n%s", diff)
	}
	for i, h := range s.Hooks() {
		if h.Ordinal() != i {
			t.Errorf("%v has ordinal %d, want %d", h.ID, h.Ordinal(), i)
		}
	}
	if got, want := s.Hooks()[0].Path(".rules"), "InitializerConfiguration/a webhooks[0].rules"; got != want {
		t.Errorf("path %q, want %q", got, want)
	}
}

func TestInitializersAreCalledForCreateAlone(t *testing.T) {
	s := compile(t, match.Input{Objects: []match.Object{initializing("a", "hook.a.io")}, Routes: controlled("a")})
	for operation, want := range map[string]int{"CREATE": 1, "UPDATE": 0, "DELETE": 0, "CONNECT": 0} {
		req := createPod()
		req.Operation = operation
		if got := called(s, mutate, req); len(got) != want {
			t.Errorf("%s: hooks %q, want %d", operation, got, want)
		}
		if got := called(s, reinvoke, req); len(got) > 0 {
			t.Errorf("%s: hooks %q are reinvoked", operation, got)
		}
	}
	binding := createPod()
	binding.SubResource = "binding"
	if got := called(s, mutate, binding); len(got) > 0 {
		t.Errorf("hooks %q are called for a subresource", got)
	}
}

// TestAnInitializerIsCalledIfAnyRuleMatches compares with the text of the API: ANY rule, each of whose lists has the name or a wildcard.
// The code of Kubernetes 1.7 asked for all rules, which was a bug.
func TestAnInitializerIsCalledIfAnyRuleMatches(t *testing.T) {
	r := newRandom(1)
	groups, versions, resources := []string{"", "apps", "example.com"}, []string{"v1", "v1beta1"}, []string{"pods", "deployments", "widgets", "leases"}
	named := func(list []string, name string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, name)
	}
	decided := map[bool]int{}
	for range 400 {
		o := initializing("a", "hook.a.io")
		w := &o.Mutating.Webhooks[0]
		w.Rules = nil
		for range 1 + r.IntN(3) {
			w.Rules = append(w.Rules, rule("CREATE", pick(r, append(groups, "*")...), pick(r, append(versions, "*")...), pick(r, append(resources, "*")...))...)
		}
		s := compile(t, match.Input{Objects: []match.Object{o}, Routes: controlled("a")})
		for range 20 {
			on := schema.GroupVersionResource{Group: pick(r, groups...), Version: pick(r, versions...), Resource: pick(r, resources...)}
			want := slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
				return named(rule.APIGroups, on.Group) && named(rule.APIVersions, on.Version) && named(rule.Resources, on.Resource)
			})
			req := createPod()
			req.Resource = &admissionv1.GroupVersionResource{Group: on.Group, Version: on.Version, Resource: on.Resource}
			if got := len(called(s, mutate, req)) == 1; got != want {
				t.Fatalf("%s by rules %+v: called %v, want %v", on, w.Rules, got, want)
			}
			decided[want]++
		}
	}
	if decided[true] < 1000 || decided[false] < 1000 {
		t.Errorf("decided %v: the test does not see enough", decided)
	}
}

func TestObjectsThatAnInitializerLeavesAlone(t *testing.T) {
	secret := func(change func(*match.Object)) (match.Object, *admissionv1.AdmissionRequest) {
		o := initializing("a", "hook.a.io")
		change(&o)
		req := createPod()
		req.Kind, req.Resource = &admissionv1.GroupVersionKind{Version: "v1", Kind: "Secret"}, &admissionv1.GroupVersionResource{Version: "v1", Resource: "secrets"}
		return o, req
	}
	pod := func(spec, annotations string, groups ...string) *admissionv1.AdmissionRequest {
		req := createPod()
		req.UserInfo = &admissionv1.UserInfo{Groups: groups}
		req.Object.Raw = fmt.Appendf(nil, `{"metadata": {"annotations": {%s}}, "spec": {%s}}`, annotations, spec)
		return req
	}
	dryRun := createPod()
	yes := true
	dryRun.DryRun = &yes
	plain := initializing("a", "hook.a.io")
	wild, wildSecret := secret(func(*match.Object) {})
	names, namedSecret := secret(func(o *match.Object) { o.Mutating.Webhooks[0].Rules[0].Resources = []string{"pods", "secrets"} })
	const (
		mirror  = `"kubernetes.io/config.mirror": "x"`
		account = `"serviceAccountName": "sidecar"`
	)
	for name, tc := range map[string]struct {
		object match.Object
		req    *admissionv1.AdmissionRequest
		route  match.Route
		want   string // skip and reason; empty if the initializer is called
	}{
		"a Pod":                          {object: plain, req: createPod()},
		"a mirror Pod of a node":         {plain, pod("", mirror, "system:nodes", "system:authenticated"), match.Route{}, "mirrorPod: the Pod mirrors a static one of a node"},
		"a mirror Pod of anyone":         {plain, pod("", mirror, "system:authenticated"), match.Route{}, "mirrorPod: the Pod mirrors a static one of a node"},
		"the annotation without a value": {plain, pod("", `"kubernetes.io/config.mirror": ""`, "a"), match.Route{}, "mirrorPod: the Pod mirrors a static one of a node"},
		"an annotation like it":          {object: plain, req: pod("", `"kubernetes.io/config.source": "file"`, "system:nodes")},
		"another Pod of a node":          {object: plain, req: pod("", "", "system:nodes")},
		"a Pod of a host, by its service account": {
			plain, pod(account, ""), match.Route{Hosts: []string{"other", "system:serviceaccount:dev:sidecar"}, HostClusters: []string{"b", "c"}},
			"ownPod: the Pod runs as a host of the initializer, which could not start without itself",
		},
		"a Pod of a host, by its SPIFFE id": {
			plain, pod(account, ""), match.Route{Stream: true, Hosts: []string{"spiffe://mesh.example/ns/dev/sa/sidecar"}, HostClusters: []string{"c"}},
			"ownPod: the Pod runs as a host of the initializer, which could not start without itself",
		},
		"a Pod of a service account of that name elsewhere": {object: plain, req: pod(account, ""), route: match.Route{
			Hosts:        []string{"system:serviceaccount:prod:sidecar", "spiffe://mesh.example/ns/prod/sa/sidecar", "https://mesh.example/ns/dev/sa/sidecar", "sidecar"},
			HostClusters: []string{"c"},
		}},
		"a Pod with the account of a host, in a cluster where hosts do not run": {object: plain, req: pod(account, ""), route: match.Route{
			Hosts: []string{"system:serviceaccount:dev:sidecar"}, HostClusters: []string{"b"},
		}},
		"a Pod with the account of a host that runs in no cluster": {object: plain, req: pod(account, ""), route: match.Route{
			Stream: true, Hosts: []string{"spiffe://mesh.example/ns/dev/sa/sidecar"},
		}},
		"a Secret by a wildcard":   {wild, wildSecret, match.Route{}, "secret: wildcards of initializers do not cover secrets, a rule has to name them"},
		"a Secret by its name":     {object: names, req: namedSecret},
		"a dry run":                {plain, dryRun, match.Route{}, "dryRun: it is a dry run: nothing is staged, and no initializer acts"},
		"a controller in shadow":   {plain, createPod(), match.Route{Shadow: true}, "shadow: it is in shadow, and no host serves it over streams: a controller cannot be asked without an effect"},
		"a host in shadow":         {object: plain, req: createPod(), route: match.Route{Shadow: true, Stream: true}},
		"an initializer elsewhere": {plain, createPod(), match.Route{Clusters: []string{"other"}}, `cluster: its route is for clusters ["other"]`},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := match.Compile(match.Input{Objects: []match.Object{tc.object}, Routes: []match.RouteBinding{{Configuration: "a", Route: tc.route}}})
			tc.req.Cluster = "c"
			a := match.NewAttributes(tc.req, namespaces{})
			got := ""
			for _, skipped := range s.Explain(t.Context(), "c", mutate, a) {
				got = skipped.Skip + ": " + skipped.Reason
			}
			if got != tc.want {
				t.Errorf("skipped with %q, want %q", got, tc.want)
			}
			if h := s.Hooks()[0]; h.Serves("c") && h.ShouldCall(t.Context(), a).Match != (tc.want == "") {
				t.Errorf("called %v", tc.want != "")
			}
		})
	}
}

func TestAPodThatCannotBeReadRefusesTheReview(t *testing.T) {
	for raw, refused := range map[string]map[string]bool{
		`{"metadata": []}`:                        {"elsewhere": true, "hosts run here": true},
		`{"spec": {"serviceAccountName": "a"}} x`: {"elsewhere": true, "hosts run here": true},
		`{"spec": []}`:                            {"elsewhere": false, "hosts run here": true},
	} {
		for cluster, want := range refused {
			routes := controlled("a")
			routes[0].Route.HostClusters = []string{"hosts run here"}
			s := compile(t, match.Input{Objects: []match.Object{initializing("a", "hook.a.io")}, Routes: routes})
			req := createPod()
			req.Cluster, req.Object.Raw = cluster, []byte(raw)
			d := s.Hooks()[0].ShouldCall(t.Context(), match.NewAttributes(req, namespaces{}))
			if refused := d.Err != nil && d.Err.Status().Code == 400; refused != want || d.Match == want {
				t.Errorf("%s, %s: decision %+v, want it refused with status 400: %v", raw, cluster, d, want)
			}
		}
	}
}

func TestAnInitializerWithoutHostsIsReported(t *testing.T) {
	_, findings := match.Compile(match.Input{Objects: []match.Object{initializing("a", "hook.a.io")}})
	expectFindings(t, findings, `warning: a.init.yaml: InitializerConfiguration/a webhooks[0]: no identity may act for the initializer*spec.hosts*(no-host)`)
}

func TestInitializersAndHooksOfOneNameAreDifferentObjects(t *testing.T) {
	s := compile(t, match.Input{Objects: []match.Object{mutating("", "a", "hook.a.io"), initializing("a", "hook.a.io")}, Routes: controlled("a")})
	want := []match.HookID{{Stage: initialize, Configuration: "a", Name: "hook.a.io"}, {Stage: mutate, Configuration: "a", Name: "hook.a.io"}}
	if diff := cmp.Diff(want, ids(s.Hooks())); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if _, findings := match.Compile(match.Input{
		Objects: []match.Object{initializing("a", "hook.a.io"), initializing("a", "hook.a.io")}, Routes: controlled("a"),
	}); len(findings) != 1 || findings[0].Code != match.CodeDuplicate {
		t.Errorf("findings %v of the same object twice", findings)
	}
}

// ordered is a route of one initializer.
func ordered(hook string, after, before []string) match.RouteBinding {
	return match.RouteBinding{
		Name: hook, Source: "routes.yaml", Configuration: strings.Split(hook, ".")[1], Hook: hook, Route: match.Route{Hosts: []string{"h"}, After: after, Before: before},
	}
}

func TestRoutesOrderInitializers(t *testing.T) {
	list := func(names ...string) []string { return names }
	for name, tc := range map[string]struct {
		routes   []match.RouteBinding
		want     []string
		findings []string
	}{
		"without a wish the order is that of the configurations": {want: list("1.a.io", "2.a.io", "3.a.io", "4.b.io")},
		"after one of a later configuration":                     {routes: []match.RouteBinding{ordered("2.a.io", list("4.b.io"), nil)}, want: list("1.a.io", "3.a.io", "4.b.io", "2.a.io")},
		"before another one":                                     {routes: []match.RouteBinding{ordered("3.a.io", nil, list("1.a.io"))}, want: list("2.a.io", "3.a.io", "1.a.io", "4.b.io")},
		"a wish that is granted already":                         {routes: []match.RouteBinding{ordered("3.a.io", list("1.a.io"), list("4.b.io"))}, want: list("1.a.io", "2.a.io", "3.a.io", "4.b.io")},
		"several wishes": {
			routes: []match.RouteBinding{ordered("1.a.io", list("3.a.io"), nil), ordered("2.a.io", list("4.b.io"), list("3.a.io"))},
			want:   list("4.b.io", "2.a.io", "3.a.io", "1.a.io"),
		},
		"a name that no initializer has": {
			routes:   []match.RouteBinding{ordered("1.a.io", list("5.a.io"), list("mutating.m.io"))},
			want:     list("1.a.io", "2.a.io", "3.a.io", "4.b.io"),
			findings: list(`warning: routes.yaml: HookRoute/1.a.io spec.after: there is no initializer "5.a.io"*`, `warning: routes.yaml: HookRoute/1.a.io spec.before: there is no initializer "mutating.m.io"*`),
		},
		"a cycle, beside wishes that count": {
			routes: []match.RouteBinding{ordered("1.a.io", list("2.a.io"), nil), ordered("2.a.io", list("3.a.io"), nil), ordered("3.a.io", list("1.a.io", "4.b.io"), nil)},
			want:   list("4.b.io", "1.a.io", "2.a.io", "3.a.io"),
			findings: list(
				`error: routes.yaml: HookRoute/1.a.io spec.after: the order is a cycle, and is not kept: 1.a.io before 3.a.io before 2.a.io before 1.a.io: *(initializer-order)`,
				`error: routes.yaml: HookRoute/2.a.io spec.after: the order is a cycle*`, `error: routes.yaml: HookRoute/3.a.io spec.after: the order is a cycle*`),
		},
		"an initializer before itself": {
			routes:   []match.RouteBinding{ordered("2.a.io", nil, list("2.a.io"))},
			want:     list("1.a.io", "3.a.io", "4.b.io", "2.a.io"),
			findings: list(`error: routes.yaml: HookRoute/2.a.io spec.before: *2.a.io before 2.a.io*`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, findings := match.Compile(match.Input{
				Objects: []match.Object{initializing("b", "4.b.io"), mutating("", "a", "mutating.m.io"), initializing("a", "1.a.io", "2.a.io", "3.a.io")},
				Routes:  append(controlled("a", "b"), tc.routes...),
			})
			expectFindings(t, slices.DeleteFunc(findings, func(f match.Finding) bool { return f.Code == match.CodeRouteOverridden }), tc.findings...)
			if diff := cmp.Diff(append(tc.want, "mutating.m.io"), called(s, mutate, createPod())); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInitializersThatActAtTheSameTime writes the initializers as they are called, with a line between those that wait for each other.
func TestInitializersThatActAtTheSameTime(t *testing.T) {
	parallel := func(name string, after ...string) match.RouteBinding {
		r := ordered(name, after, nil)
		r.Route.Stream, r.Route.Parallel = true, true
		return r
	}
	change := func(r match.RouteBinding, f func(*match.Route)) match.RouteBinding {
		f(&r.Route)
		return r
	}
	for name, tc := range map[string]struct {
		routes   []match.RouteBinding
		want     string
		findings []string
	}{
		"none":      {want: "1.a.io | 2.a.io | 3.a.io | 4.b.io"},
		"one alone": {routes: []match.RouteBinding{parallel("2.a.io")}, want: "1.a.io | 2.a.io | 3.a.io | 4.b.io"},
		"two that are not next to each other": {
			routes: []match.RouteBinding{parallel("1.a.io"), parallel("3.a.io")}, want: "1.a.io | 2.a.io | 3.a.io | 4.b.io",
		},
		"three, of two configurations": {
			routes: []match.RouteBinding{parallel("2.a.io"), parallel("3.a.io"), parallel("4.b.io")}, want: "1.a.io | 2.a.io 3.a.io 4.b.io",
		},
		"two pairs": {
			routes: []match.RouteBinding{parallel("1.a.io"), parallel("2.a.io"), parallel("3.a.io", "2.a.io"), parallel("4.b.io")},
			want:   "1.a.io 2.a.io | 3.a.io 4.b.io",
		},
		"a wish that changes the order": {
			routes: []match.RouteBinding{parallel("1.a.io", "3.a.io"), parallel("2.a.io"), parallel("3.a.io"), parallel("4.b.io")},
			want:   "2.a.io 3.a.io | 1.a.io 4.b.io",
		},
		"one of a controller": {
			routes: []match.RouteBinding{change(parallel("1.a.io"), func(r *match.Route) { r.Stream = false }), parallel("2.a.io")},
			want:   "1.a.io | 2.a.io | 3.a.io | 4.b.io",
			findings: []string{
				`warning: routes.yaml: HookRoute/1.a.io spec.parallel: hook "1.a.io" is an initializer of a controller, *add ` + "`stream: {}`" + `*`,
			},
		},
		"one in shadow": {
			routes: []match.RouteBinding{parallel("1.a.io"), change(parallel("2.a.io"), func(r *match.Route) { r.Shadow = true }), parallel("3.a.io")},
			want:   "1.a.io | 2.a.io | 3.a.io | 4.b.io", findings: []string{`warning: routes.yaml: HookRoute/2.a.io spec.parallel: hook "2.a.io" is in shadow*`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, findings := match.Compile(match.Input{
				Objects: []match.Object{initializing("b", "4.b.io"), mutating("", "a", "mutating.m.io"), initializing("a", "1.a.io", "2.a.io", "3.a.io")},
				Routes:  append(controlled("a", "b"), tc.routes...),
			})
			expectFindings(t, slices.DeleteFunc(findings, func(f match.Finding) bool { return f.Code == match.CodeRouteOverridden }), tc.findings...)
			got, hooks := "", s.Candidates("c", mutate, match.NewAttributes(createPod(), namespaces{}))
			for i, h := range hooks[:4] {
				switch {
				case i == 0:
				case h.ActsWith(hooks[i-1]):
					got += " "
				default:
					got += " | "
				}
				got += h.ID.Name
			}
			if got != tc.want {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTheOrderGrantsEveryWishThatIsInNoCycle asks for random orders.
func TestTheOrderGrantsEveryWishThatIsInNoCycle(t *testing.T) {
	r := newRandom(7)
	moved, cycles := 0, 0
	for range 300 {
		names := []string{}
		for i := range 6 {
			names = append(names, fmt.Sprintf("%d.a.io", i))
		}
		in := match.Input{Objects: []match.Object{initializing("a", names...)}}
		type wish struct{ first, then string }
		var wishes []wish
		for _, name := range names {
			var after, before []string
			for range r.IntN(2) {
				after = append(after, pick(r, names...))
				wishes = append(wishes, wish{after[len(after)-1], name})
			}
			if r.maybe(4) {
				before = append(before, pick(r, names...))
				wishes = append(wishes, wish{name, before[0]})
			}
			in.Routes = append(in.Routes, ordered(name, after, before))
		}
		s, findings := match.Compile(in)
		got := called(s, mutate, createPod())
		if diff := cmp.Diff(names, slices.Sorted(slices.Values(got))); diff != "" {
			t.Fatalf("initializers (-want +got):\n%s", diff)
		}
		broken := 0
		for _, w := range wishes {
			if slices.Index(got, w.first) >= slices.Index(got, w.then) {
				broken++
			}
		}
		if (broken > 0) != (len(findings) > 0) {
			t.Fatalf("order %q breaks %d of the wishes %v, findings %v", got, broken, wishes, findings)
		}
		cycles += min(len(findings), 1)
		if !slices.Equal(got, names) {
			moved++
		}
	}
	if moved < 50 || cycles < 50 || cycles > 250 {
		t.Errorf("%d orders changed, %d with cycles: the test does not see enough", moved, cycles)
	}
}
