package service_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestEntriesThatWereMadeFromAnotherConfigurationAreFoundOnTheirCluster(t *testing.T) {
	drift := &configv1.EntryDrift{Cluster: "east", Unplanned: without("a", "b"), UnplannedMore: 3, Gone: 1}
	for name, tt := range map[string]struct {
		dispatchers []*configv1.DispatcherReport
		want        []string
	}{
		"no dispatcher has seen any": {[]*configv1.DispatcherReport{{Status: named("one")}}, nil},
		"those of another cluster":   {[]*configv1.DispatcherReport{{Status: named("one"), EntryDrifts: []*configv1.EntryDrift{{Cluster: "west", Gone: 1}}}}, nil},
		"some of the dispatchers have them": {
			[]*configv1.DispatcherReport{{Status: named("one"), EntryDrifts: []*configv1.EntryDrift{drift}}, {Status: named("three")}, {Status: named("two"), EntryDrifts: []*configv1.EntryDrift{drift}}},
			[]string{"its API servers call the mesh by entries that were made from another configuration: new or changed since: " +
				`hook "a" of ValidatingWebhookConfiguration/p, hook "b" of ValidatingWebhookConfiguration/p and 3 more; 1 hook changed or gone ` +
				"(seen by one; two); run `portcullis cluster register east` and apply its output"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {identities: [a]}\n")
			for _, d := range tt.dispatchers {
				f.hang(d.GetStatus().GetDispatcherId(), d)
			}
			a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Cluster", Name: "east"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range a.GetObject().GetFindings() {
				if x.GetCode() == "entry-drift" {
					got = append(got, x.GetMessage())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEntriesThatTheMeshHasNotWrittenAreFoundOnTheirCluster(t *testing.T) {
	f := newFixture(t)
	f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\n"+
		"spec: {identities: [a], kubeconfig: /kubeconfig, registration: {url: 'https://mesh.example.com'}}\n")
	for cluster, want := range map[string]string{
		"west": "",
		"east": "its entries, which the mesh keeps, are not known to match the configuration in force: it is away (seen by one)",
	} {
		f.hang("one", &configv1.DispatcherReport{EntriesBehind: []*configv1.EntriesBehind{{Cluster: cluster, Message: "it is away"}}})
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Cluster", Name: "east"}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, x := range a.GetObject().GetFindings() {
			if x.GetCode() == "entries-behind" {
				got = x.GetMessage()
			}
		}
		if got != want {
			t.Errorf("%s: %q", cluster, got)
		}
		registered := "not there"
		for _, c := range a.GetObject().GetConditions() {
			if c.GetType() == "Registered" {
				registered = c.GetStatus()
			}
		}
		if is := map[bool]string{true: "True", false: "False"}[want == ""]; registered != is {
			t.Errorf("%s: Registered is %s, want %s", cluster, registered, is)
		}
	}
}

func TestEntriesThatBringMoreThanPlannedAreFoundOnTheirCluster(t *testing.T) {
	f := newFixture(t)
	f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\n"+
		"spec: {identities: [a], kubeconfig: /kubeconfig, registration: {url: 'https://mesh.example.com'}}\n")
	for _, id := range []string{"one", "two"} { // both say the same
		f.hang(id, &configv1.DispatcherReport{EntriesWider: []*configv1.EntriesWider{{Cluster: "west", Message: "a"}, {Cluster: "east", Message: "b"}}})
	}
	a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Cluster", Name: "east"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range a.GetObject().GetFindings() {
		if x.GetCode() == "entries-wider" {
			got = append(got, x.GetMessage())
		}
	}
	if diff := cmp.Diff([]string{"b"}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestAHookIsEffectiveOnceItsEntriesBringItsRequests: the configuration of dispatchers does not help for requests that do
// not come.
func TestAHookIsEffectiveOnceItsEntriesBringItsRequests(t *testing.T) {
	f := newFixture(t)
	f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\n"+
		"spec: {identities: [a], kubeconfig: /kubeconfig, registration: {url: 'https://mesh.example.com'}}\n")
	revision := number(f.applied("root", policy("p", "failurePolicy: Ignore")).GetRevision().GetSources()["etcd"])
	const object = "ValidatingWebhookConfiguration/p"
	for name, tt := range map[string]struct {
		one, two []*configv1.EntriesBehind
		want     string   // the message; empty for True
		more     []string // that one only names
	}{
		"they are written": {nil, nil, "", nil},
		"those of more clusters than a report explains": {
			nil, nil, "the entries that the mesh keeps may not bring all of its requests yet in east: more clusters are behind than the report explains",
			[]string{"east"},
		},
		"one dispatcher knows that they lack it": {
			[]*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Lacking: []string{object}}}, nil,
			"the entries that the mesh keeps may not bring all of its requests yet in east: soon", nil,
		},
		"they lack another one": {[]*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Lacking: []string{"ValidatingWebhookConfiguration/q"}}}, nil, "", nil},
		"they lack more than a report names": {
			[]*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Lacking: []string{"ValidatingWebhookConfiguration/q"}, LackingMore: 1}}, nil,
			"the entries that the mesh keeps may not bring all of its requests yet in east: soon", nil,
		},
		"one dispatcher has begun": {[]*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Unread: true}}, nil, "", nil},
		"all have begun": {
			[]*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Unread: true}}, []*configv1.EntriesBehind{{Cluster: "east", Message: "soon", Unread: true}},
			"the entries that the mesh keeps may not bring all of its requests yet in east: soon", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := said("one", revision, revision), said("two", revision, revision)
			one.EntriesBehind, two.EntriesBehind, one.EntriesBehindMore = tt.one, tt.two, tt.more
			f.hang("one", one)
			f.hang("two", two)
			a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: policyKey})
			if err != nil {
				t.Fatal(err)
			}
			got := "there is no condition"
			for _, c := range a.GetObject().GetConditions() {
				if c.GetType() == "Effective" {
					got = c.GetMessage()
				}
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

const eastAndKept = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {identities: [a]}\n---\n" +
	"apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: kept}\n" +
	"spec: {identities: [b], kubeconfig: /kubeconfig, registration: {url: 'https://mesh.example.com'}}"

// TestAnApplySaysWhichEntriesHaveToBeMadeAgain: each apply is the last of some, with a cluster east, and one whose entries the mesh keeps.
func TestAnApplySaysWhichEntriesHaveToBeMadeAgain(t *testing.T) {
	t.Parallel()
	one := hooked(validating, https, "a")
	for name, tt := range map[string]struct {
		applies []string
		want    bool
	}{
		"a new hook":                     {[]string{one}, true},
		"a hook more":                    {[]string{one, hooked(validating, https, "a", "b")}, true},
		"other rules":                    {[]string{one, strings.ReplaceAll(one, "deployments", "daemonsets")}, true},
		"another policy":                 {[]string{one, strings.ReplaceAll(one, "Ignore", "Fail")}, true},
		"a route brings it to a cluster": {[]string{one + "\n---\n" + route("r", ", clusters: [kept]"), route("r", ", clusters: [kept, east]")}, true},
		"a route leaves the cluster out": {[]string{one + "\n---\n" + route("r", ", clusters: [kept]")}, false},
		"another address":                {[]string{one, hooked(validating, "{url: 'https://others.example.com'}", "a")}, false},
		"it moves to a stream":           {[]string{one, route("r", "")}, false},
		"the same again":                 {[]string{one, one}, false},
		"a hook less":                    {[]string{hooked(validating, https, "a", "b"), one}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.applied("root", eastAndKept)
			var last *configv1.ApplyResponse
			for _, documents := range tt.applies {
				last = f.applied("root", documents)
			}
			var got []string
			for _, x := range last.GetFindings() {
				if x.GetCode() == "register-again" {
					got = append(got, x.GetSeverity()+": "+x.GetMessage())
				}
			}
			var want []string
			if tt.want {
				want = []string{"info: the mesh does not keep the entries of east: their API servers send it no requests of new or changed hooks until you run " +
					"`portcullis cluster register NAME --apply`, or `join`, for each with its flags of before"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEntriesThatNoDispatcherHasSeenAreFoundOnTheirCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.applied("root", eastAndKept)
	for _, tt := range []struct {
		one, two []string // unseen
		want     bool
	}{
		{nil, nil, false}, {[]string{"east"}, nil, false}, {[]string{"east"}, []string{"kept"}, false}, {[]string{"east", "kept"}, []string{"east"}, true},
	} {
		f.hang("one", &configv1.DispatcherReport{EntriesUnseen: tt.one})
		f.hang("two", &configv1.DispatcherReport{EntriesUnseen: tt.two})
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Cluster", Name: "east"}})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(a.GetObject().GetFindings(), func(x *configv1.Finding) bool {
			return x.GetCode() == "entries-unseen" && strings.Contains(x.GetMessage(), "`portcullis cluster register east --diff`")
		})
		if got != tt.want {
			t.Errorf("%v and %v: %v", tt.one, tt.two, a.GetObject().GetFindings())
		}
	}
}
