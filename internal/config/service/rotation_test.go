package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// hooked is the configuration p with hooks of these names, of a kind and with a clientConfig.
func hooked(kind, clientConfig string, names ...string) string {
	text := "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: p}\nwebhooks:\n"
	for _, name := range names {
		text += "- {name: " + name + ".example.com, clientConfig: " + clientConfig + ", failurePolicy: Ignore, sideEffects: None," +
			" admissionReviewVersions: [v1], rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}\n"
	}
	return text
}

const (
	validating = "ValidatingWebhookConfiguration"
	mutating   = "MutatingWebhookConfiguration"
	https      = "{url: 'https://hooks.example.com'}"
)

// pending are the hooks of the configuration p that are not in rotation, by the records in the store.
func (f *fixture) pending(kind string) []string {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r := state.Records[config.Key{Kind: kind, Name: "p"}]
	if r == nil {
		f.t.Fatal("the configuration is not there")
	}
	var names []string
	for _, name := range r.Pending {
		names = append(names, strings.TrimSuffix(name, ".example.com"))
	}
	return names
}

func TestHooksArePendingThatAreNewAndThatStreamsServe(t *testing.T) {
	t.Parallel()
	old := "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: ExternalAdmissionHookConfiguration\nmetadata: {name: p}\n" +
		"externalAdmissionHooks: [{name: a.example.com, rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}]"
	for name, test := range map[string]struct {
		kind    string
		applies []string
		want    []string
	}{
		"both are applied at once":        {validating, []string{hooked(validating, https, "a", "b") + "\n---\n" + route("r", "")}, []string{"a", "b"}},
		"the route comes first":           {validating, []string{route("r", ""), hooked(validating, https, "b", "a")}, []string{"a", "b"}},
		"hooks that mutate":               {mutating, []string{route("r", ""), hooked(mutating, https, "a")}, []string{"a"}},
		"hooks that mutate have a twin":   {validating, []string{route("r", ", stage: mutate"), hooked(validating, https, "a")}, nil},
		"the route comes later":           {validating, []string{hooked(validating, https, "a"), route("r", "")}, nil},
		"streams serve it without a word": {validating, []string{hooked(validating, "{}", "a"), route("r", "")}, []string{"a"}},
		"nobody streams":                  {validating, []string{hooked(validating, https, "a")}, nil},
		"the most precise route counts": {validating, []string{
			route("r", "") + "\n---\n" + route("s", ", hook: a.example.com, rotation: Immediate") + "\n---\n" + route("t", ", hook: b.example.com, rotation: AfterProbe"),
			hooked(validating, https, "a", "b", "c"),
		}, []string{"b", "c"}},
		"an update has a new hook": {validating, []string{
			hooked(validating, https, "a"), route("r", ""), hooked(validating, https, "b", "a"),
		}, []string{"b"}},
		"an update has the first hook": {validating, []string{
			strings.Replace(hooked(validating, https), "webhooks:", "webhooks: []", 1), route("r", ""), hooked(validating, https, "a"),
		}, []string{"a"}},
		"an update moves a hook to streams": {validating, []string{
			route("r", ""), hooked(validating, https, "a"), "rotated", hooked(validating, "{}", "a"),
		}, nil},
		"an update keeps what is pending": {validating, []string{
			route("r", ""), hooked(validating, https, "a"), hooked(validating, "{}", "a"), route("r", ", timeout: 2s"),
		}, []string{"a"}},
		"an update drops a hook": {validating, []string{
			route("r", ""), hooked(validating, https, "a", "b"), hooked(validating, https, "a"),
		}, []string{"a"}},
		"a hook that was dropped is a new one": {validating, []string{
			route("r", ""), hooked(validating, https, "a", "b"), "rotated", hooked(validating, https, "a"), hooked(validating, https, "a", "b"),
		}, []string{"b"}},
		"a route says Immediate, and then nothing again": {validating, []string{
			route("r", ""), hooked(validating, https, "a"), route("r", ", rotation: Immediate"), route("r", ""),
		}, nil},
		"a route names another configuration, and then this one again": {validating, []string{
			route("r", ""), hooked(validating, https, "a"), strings.Replace(route("r", ""), "configuration: p", "configuration: q", 1), route("r", ""),
		}, nil},
		"kinds of v1alpha1": {validating, []string{route("r", ""), old}, []string{"a"}},
		"twice the same": {validating, []string{
			route("r", ""), hooked(validating, https, "a"), hooked(validating, https, "a"),
		}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for _, documents := range test.applies {
				if documents == "rotated" {
					f.rotated(test.kind, "a", "b")
					continue
				}
				f.applied("root", documents)
			}
			if diff := cmp.Diff(test.want, f.pending(test.kind)); diff != "" {
				t.Errorf("pending (-want +got):\n%s", diff)
			}
		})
	}
}

// rotated puts hooks of the configuration p in rotation.
func (f *fixture) rotated(kind string, names ...string) {
	f.t.Helper()
	var ready []service.Ready
	for _, name := range names {
		ready = append(ready, service.Ready{Key: config.Key{Kind: kind, Name: "p"}, Hook: name + ".example.com", Host: "host-1"})
	}
	if err := f.Rotate(f.t.Context(), ready); err != nil {
		f.t.Fatal(err)
	}
}

func TestARouteThatIsDeletedLeavesNoMarkBehind(t *testing.T) {
	f := newFixture(t)
	f.applied("root", route("r", "")+"\n---\n"+hooked(validating, https, "a"))
	if _, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: "HookRoute", Name: "r"}}); err != nil {
		t.Fatal(err)
	}
	f.applied("root", route("s", ""))
	if got := f.pending(validating); got != nil {
		t.Errorf("a hook that was called has become pending: %v", got)
	}
}

func TestAHookIsPutInRotationOnceAndForGood(t *testing.T) {
	f := newFixture(t)
	a := f.applied("root", route("r", "")+"\n---\n"+hooked(validating, https, "a", "b"))
	if !slices.ContainsFunc(a.GetFindings(), func(x *configv1.Finding) bool {
		return x.GetCode() == "pending" && x.GetSeverity() == "info" && strings.Contains(x.GetMessage(), "a.example.com")
	}) {
		t.Errorf("who applies it is told %v", a.GetFindings())
	}
	before := a.GetObjects()[1]
	f.rotated(validating, "a", "of-another")
	if got := f.pending(validating); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("pending %v", got)
	}
	after, err := f.Get(f.as("root"), &configv1.GetRequest{Key: before.GetKey()})
	if err != nil {
		t.Fatal(err)
	}
	o := after.GetObject()
	if o.GetGeneration() != 1 || o.GetActor() != "root" || o.GetUid() != before.GetUid() || o.GetResourceVersion() == before.GetResourceVersion() {
		t.Errorf("it was %v, and is %v", before, o)
	}
	changes, err := f.store.Changes(t.Context(), 1)
	want := []string{`put hook "a.example.com" of ValidatingWebhookConfiguration/p in rotation: host-1 is ready`}
	if err != nil || changes[0].Actor != "portcullis" || !slices.Equal(changes[0].Actions, want) || !slices.Equal(changes[0].Keys, []string{validating + "/p"}) {
		t.Errorf("the change is %+v, %v", changes, err)
	}
	f.rotated(validating, "a")
	if again, err := f.store.Changes(t.Context(), 1); err != nil || again[0].Revision != changes[0].Revision {
		t.Errorf("once more, it has changed something: %+v, %v", again, err)
	}
	f.rotated(validating, "b", "b")
	if got := f.pending(validating); got != nil {
		t.Errorf("pending %v", got)
	}
}

func TestWhoeverIsFasterPutsAHookInRotation(t *testing.T) {
	f := newFixture(t)
	f.applied("root", route("r", "")+"\n---\n"+hooked(validating, https, "a", "b", "c", "d"))
	ended := make(chan error, 4)
	for _, name := range []string{"a", "b", "c", "d"} {
		go func() {
			key := config.Key{Kind: validating, Name: "p"}
			ended <- f.Rotate(f.t.Context(), []service.Ready{{Key: key, Hook: name + ".example.com"}, {Key: key, Hook: "a.example.com"}})
		}()
	}
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got := f.pending(validating); got != nil {
		t.Errorf("pending %v", got)
	}
}

func TestTheConditionSaysWhatAPendingHookWaitsFor(t *testing.T) {
	f := newFixture(t)
	f.applied("root", route("r", "")+"\n---\n"+hooked(validating, https, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"))
	says := func(status, reason string, want ...string) {
		t.Helper()
		answer, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: validating, Name: "p"}})
		if err != nil {
			t.Fatal(err)
		}
		c := answer.GetObject().GetConditions()[1]
		if c.GetType() != "InRotation" || c.GetStatus() != status || c.GetReason() != reason {
			t.Errorf("condition %v", c)
		}
		for _, w := range want {
			if !strings.Contains(c.GetMessage(), w) {
				t.Errorf("no %q in %q", w, c.GetMessage())
			}
		}
	}
	says("False", "Pending", `hook "a.example.com": no dispatcher has reported yet`, "and 2 more")
	tells := func(id, hook, reason, message string) {
		p, _ := f.dispatcher(id)
		pending := &configv1.PendingHook{Object: validating + "/p", Hook: hook + ".example.com", Reason: reason, Message: message}
		p.Tell(&configv1.DispatcherReport{Status: named(id), Pending: []*configv1.PendingHook{pending}})
	}
	tells("one", "a", etcdstore.PendingNotReady, "the cache is cold")
	tells("two", "a", etcdstore.PendingMissing, "no host is connected")
	f.until(func() bool {
		all, err := f.store.Dispatchers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 2
	})
	says("False", "Pending", `hook "a.example.com": HostNotReady: the cache is cold; hook "b.example.com": no dispatcher`)
	f.rotated(validating, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	says("True", "NonePending")
}

func TestOneTransactionPutsSoManyObjectsInRotation(t *testing.T) {
	f := newFixture(t)
	const most, objects = 100, 101
	var documents []string
	var ready []service.Ready
	for i := range objects {
		name := fmt.Sprintf("p%03d", i)
		documents = append(documents, strings.Replace(hooked(validating, "{}", "a", "b"), "name: p}", "name: "+name+"}", 1))
		for _, hook := range []string{"a.example.com", "b.example.com"} {
			ready = append(ready, service.Ready{Key: config.Key{Kind: validating, Name: name}, Hook: hook})
		}
	}
	f.applied("root", strings.Join(documents, "\n---\n"))
	for _, left := range []int{objects - most, 0} {
		if err := f.Rotate(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
		state, err := f.store.Read(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		pending := 0
		for _, r := range state.Records {
			if len(r.Pending) > 0 {
				pending++
			}
		}
		if pending != left {
			t.Errorf("%d objects are pending, want %d", pending, left)
		}
	}
}

// TestALiveHookIsNotLeftToHostsThatAreNotThere: each apply is the last of some, and no host is connected.
func TestALiveHookIsNotLeftToHostsThatAreNotThere(t *testing.T) {
	t.Parallel()
	closed := strings.ReplaceAll(hooked(validating, https, "a"), "failurePolicy: Ignore", "failurePolicy: Fail")
	moved := route("r", ", hosts: [one]")
	for name, test := range map[string]struct {
		applies []string // "rotated" puts a in rotation; "gone" ends the hosts, which are there first
		refused bool
	}{
		"a webhook moves to a stream":               {[]string{closed, "gone", moved}, true},
		"both come in one apply":                    {[]string{closed, "gone", closed + "\n---\n" + moved}, true},
		"a live hook begins to fail closed":         {[]string{hooked(validating, https, "a"), moved, "gone", closed}, true},
		"it moves to other hosts":                   {[]string{closed, moved, route("r", ", hosts: [nobody]")}, true},
		"a live hook leaves the shadow":             {[]string{closed, "gone", route("r", ", hosts: [one], shadow: true"), moved}, true},
		"a precise route takes one of two":          {[]string{strings.ReplaceAll(hooked(validating, https, "a", "b"), "Ignore", "Fail"), "gone", route("r", ", hook: b.example.com, hosts: [one]")}, true},
		"the host is there":                         {[]string{closed, moved}, false},
		"it fails open":                             {[]string{hooked(validating, https, "a"), "gone", moved}, false},
		"it is in shadow":                           {[]string{closed, "gone", route("r", ", hosts: [one], shadow: true")}, false},
		"the author wants it at once":               {[]string{closed, "gone", route("r", ", hosts: [one], rotation: Immediate")}, false},
		"it is new, and pending":                    {[]string{"gone", closed + "\n---\n" + moved}, false},
		"it had no host before":                     {[]string{closed, moved, "gone", route("r", ", hosts: [one], timeout: 2s")}, false},
		"it had none, and gets other hosts":         {[]string{closed, moved, "gone", route("r", ", hosts: [two]")}, false},
		"another configuration has none":            {[]string{closed, moved, "gone", strings.Replace(closed, "name: p}", "name: q}", 1)}, false},
		"it goes back from a stream to the webhook": {[]string{closed, moved, "gone", route("r", ", hosts: [one], clusters: [c]"), closed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			last := len(test.applies) - 1
			for _, documents := range test.applies[:last] {
				if documents == "gone" {
					f.away = true
				} else {
					f.applied("root", documents)
				}
			}
			if !test.refused {
				f.applied("root", test.applies[last])
				return
			}
			f.refused(codes.FailedPrecondition, "and no connected host may serve it", "root", test.applies[last])
			f.refused(codes.FailedPrecondition, "--acknowledge danger-no-host", "root", test.applies[last], acknowledging("danger-events"))
			f.applied("root", test.applies[last], acknowledging("danger-no-host"))
		})
	}
}

// TestAHookIsNotLeftToHostsThatAnotherDispatcherLacks: this dispatcher has the host, and others report theirs.
func TestAHookIsNotLeftToHostsThatAnotherDispatcherLacks(t *testing.T) {
	t.Parallel()
	const key = validating + "/p"
	closed := strings.ReplaceAll(hooked(validating, https, "a"), "failurePolicy: Ignore", "failurePolicy: Fail")
	reports := func(hosts ...*configv1.HostOffers) *configv1.DispatcherReport {
		return &configv1.DispatcherReport{Connected: &configv1.ConnectedHosts{Hosts: hosts}}
	}
	offers := func(identity, object string, authorities ...string) *configv1.HostOffers {
		return &configv1.HostOffers{Identity: identity, Authorities: authorities, Hooks: []*configv1.HookName{{Object: object, Hook: "a.example.com"}}}
	}
	more, older := reports(), reports()
	more.Connected.More = true
	older.Status = &configv1.DispatcherStatus{Applied: &configv1.Revision{Sources: map[string]string{"etcd": "1"}}}
	for name, test := range map[string]struct {
		two     *configv1.DispatcherReport // of another dispatcher
		before  string                     // is applied first, with the hook
		applied string
		refused string // where no host may serve the hook; empty if the apply is not refused
	}{
		"it has no host":                        {reports(), "", route("r", ", hosts: [one]"), "no connected host may serve it on two:"},
		"neither has one":                       {reports(), "", route("r", ", hosts: [nobody]"), "no connected host may serve it on here; two:"},
		"it has the host":                       {reports(offers("one", key)), "", route("r", ", hosts: [one]"), ""},
		"it has one of two identities":          {reports(offers("one", key)), "", route("r", ", hosts: [zero, one]"), ""},
		"its host offers another hook":          {reports(offers("one", "Mutating"+key)), "", route("r", ", hosts: [one]"), "on two:"},
		"its host is another":                   {reports(offers("three", key)), "", route("r", ", hosts: [one]"), "on two:"},
		"another authority vouches for it":      {reports(offers("one", key, "spiffe://evil")), "", route("r", ", hosts: [one], authorities: ['spiffe://mesh']"), "on two:"},
		"an authority of the route does":        {reports(offers("one", key, "spiffe://mesh")), "", route("r", ", hosts: [one], authorities: ['spiffe://mesh']"), ""},
		"it had none before":                    {reports(), route("r", ", hosts: [one]"), route("r", ", hosts: [one], timeout: 2s"), ""},
		"it had one that may not serve it then": {reports(offers("one", key)), route("r", ", hosts: [one]"), route("r", ", hosts: [three]"), "on two:"},
		"it names some of its hosts":            {more, "", route("r", ", hosts: [one]"), ""},
		"it is of the version before":           {&configv1.DispatcherReport{}, "", route("r", ", hosts: [one]"), ""},
		"it does not have the hook yet":         {older, "", route("r", ", hosts: [one]"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.applied("root", closed)
			if test.before != "" {
				a = f.applied("root", test.before)
			}
			if test.two.Status == nil {
				test.two.Status = &configv1.DispatcherStatus{Applied: a.GetRevision()}
			}
			f.hang("two", test.two)
			f.hang("here", reports()) // counts for others alone
			if test.refused == "" {
				f.applied("root", test.applied)
				return
			}
			f.refused(codes.FailedPrecondition, test.refused, "root", test.applied)
			f.applied("root", test.applied, acknowledging("danger-no-host"))
		})
	}
}
