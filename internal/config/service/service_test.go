package service_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// fixture is a service over a real etcd.
type fixture struct {
	*service.Service

	t      *testing.T
	client *clientv3.Client
	store  *etcdstore.Store
	others map[config.Key]config.Object
	hosts  []service.HookHosts // of the hooks here

	connected []*configv1.Host // here, by session
	away      bool             // whether no host offers any hook
	problems  config.Problems  // of the configuration in force
	shadows   *shadow.Recorder
}

// who calls is in the context.
type caller struct{}

func newFixture(t *testing.T, more ...func(*service.Options)) *fixture {
	t.Helper()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	objects, err := etcdstore.New(etcdstore.Options{Client: etcd.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := newFixtureOf(t, objects, etcd.Backup, more...)
	f.client = etcd.Client()
	return f
}

// newFixtureOf is a service of a store.
func newFixtureOf(t *testing.T, objects *etcdstore.Store, backup func(io.Writer) error, more ...func(*service.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: objects, others: map[config.Key]config.Object{}, shadows: shadow.NewRecorder(0)}
	options := service.Options{
		Objects: f.store, Live: f, Backup: backup, Operators: identity.Grant{Names: []string{"root"}},
		Inspect: lint.Options{OwnNamespace: "portcullis", MutateBudget: 14 * time.Second}.InspectOnly, Decoder: configtest.NewDecoder(),
		Identity: func(ctx context.Context) identity.Peer {
			if peer, ok := ctx.Value(caller{}).(identity.Peer); ok {
				return peer
			}
			who, _ := ctx.Value(caller{}).(string)
			return identity.Named(who)
		},
		ID: "here", Hooks: func() []service.HookHosts { return f.hosts }, Hosts: f.page, Shadows: f.shadows,
		Offers: func(h *match.Hook) bool { return !f.away && !slices.Contains(h.Route.Hosts, "nobody") },
	}
	for _, change := range more {
		change(&options)
	}
	var err error
	if f.Service, err = service.New(options); err != nil {
		t.Fatal(err)
	}
	f.SetClock(func() time.Time { return time.Unix(1000, 0) })
	return f
}

// Configuration implements service.Live.
func (f *fixture) Configuration() store.Configuration {
	return store.Configuration{Objects: f.others, Problems: f.problems, Fresh: true, Judging: true}
}

// page is some of the hosts that are connected.
func (f *fixture) page(_, after string, limit int) (hosts []*configv1.Host, more bool) {
	for _, h := range f.connected {
		switch {
		case h.GetSessionId() <= after:
		case len(hosts) == limit:
			return hosts, true
		default:
			hosts = append(hosts, h)
		}
	}
	return hosts, false
}

// apply applies documents, separated by ---, as somebody.
func (f *fixture) apply(who, documents string, more ...func(*configv1.ApplyRequest)) (*configv1.ApplyResponse, error) {
	r := &configv1.ApplyRequest{}
	for document := range strings.SplitSeq(documents, "\n---\n") {
		r.Manifests = append(r.Manifests, &admissionv1.Object{Raw: []byte(document)})
	}
	for _, change := range more {
		change(r)
	}
	return f.Apply(context.WithValue(f.t.Context(), caller{}, who), r)
}

// applyOf is a request with one document.
func applyOf(document string) *configv1.ApplyRequest {
	return &configv1.ApplyRequest{Manifests: []*admissionv1.Object{{Raw: []byte(document)}}}
}

// applied is apply, where nothing may stand against it.
func (f *fixture) applied(who, documents string, more ...func(*configv1.ApplyRequest)) *configv1.ApplyResponse {
	f.t.Helper()
	a, err := f.apply(who, documents, more...)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

// refused is apply, where something has to.
func (f *fixture) refused(code codes.Code, says, who, documents string, more ...func(*configv1.ApplyRequest)) {
	f.t.Helper()
	before, err := f.store.Read(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.apply(who, documents, more...)
	if s, _ := status.FromError(err); err == nil || s.Code() != code || !strings.Contains(s.Message(), says) {
		f.t.Errorf("error %v, want %s with %q", err, code, says)
	}
	if after, err := f.store.Read(f.t.Context(), before); err != nil || after != before {
		f.t.Errorf("it was refused, and changed something: %v, %v", after, err)
	}
}

func dryRun(r *configv1.ApplyRequest) { r.DryRun = true }

// expecting says which version of the policy has to be there.
func expecting(version string) func(*configv1.ApplyRequest) {
	const key = "ValidatingWebhookConfiguration/p"
	return func(r *configv1.ApplyRequest) { r.ExpectedResourceVersions = map[string]string{key: version} }
}

func acknowledging(codes ...string) func(*configv1.ApplyRequest) {
	return func(r *configv1.ApplyRequest) { r.Acknowledge = codes }
}

// policy is a configuration with one hook, which nothing stands against.
func policy(name, more string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ` + name + `}
webhooks:
- name: policy.example.com
  clientConfig: {}
  rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  ` + more
}

// route is a route of the policy p.
func route(name, more string) string {
	return `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: ` + name + `}
spec: {configuration: p, stream: {}` + more + `}`
}

func TestApplyCreatesAndUpdatesWhatHasChanged(t *testing.T) {
	f := newFixture(t)
	both := policy("p", "failurePolicy: Ignore") + "\n---\n" + route("r", "")
	a := f.applied("root", both)
	if a.GetResults()[0] != "created" || a.GetResults()[1] != "created" || a.GetObjects()[0].GetGeneration() != 1 {
		t.Errorf("answered %v", a)
	}
	again := f.applied("root", both)
	if again.GetResults()[0] != "unchanged" || again.GetObjects()[0].GetResourceVersion() != a.GetObjects()[0].GetResourceVersion() {
		t.Errorf("answered %v", again)
	}
	next := f.applied("root", policy("p", "failurePolicy: Fail"))
	if next.GetResults()[0] != "updated" || next.GetObjects()[0].GetGeneration() != 2 || next.GetObjects()[0].GetUid() != a.GetObjects()[0].GetUid() {
		t.Errorf("answered %v", next)
	}
	changes, err := f.store.Changes(t.Context(), 10)
	if err != nil || len(changes) != 2 || changes[0].Actor != "root" || changes[0].Actions[0] != "updated ValidatingWebhookConfiguration/p" {
		t.Errorf("changes %+v, %v", changes, err)
	}
}

func TestApplyIsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	f.refused(codes.InvalidArgument, "webhooks[0].name", "root",
		route("r", "")+"\n---\n"+strings.Replace(policy("p", ""), "policy.example.com", "policy", 1))
}

func TestADryRunChangesNothing(t *testing.T) {
	f := newFixture(t)
	before, _ := f.store.Read(t.Context(), nil)
	if a := f.applied("root", policy("p", ""), dryRun); a.GetResults()[0] != "created" {
		t.Errorf("answered %v", a)
	}
	if after, err := f.store.Read(t.Context(), before); err != nil || after != before {
		t.Errorf("something has changed: %v, %v", after, err)
	}
}

func TestAnObjectMustBeAsExpected(t *testing.T) {
	f := newFixture(t)
	first := f.applied("root", policy("p", "failurePolicy: Ignore"), expecting("0")).GetObjects()[0].GetResourceVersion()
	f.refused(codes.Aborted, "not 0", "root", policy("p", "failurePolicy: Fail"), expecting("0"))
	f.applied("root", policy("p", "failurePolicy: Fail"), expecting(first))
	f.refused(codes.Aborted, "not "+first, "root", policy("p", "failurePolicy: Ignore"), expecting(first))
}

func TestTheSameObjectFromAnotherSourceIsRefused(t *testing.T) {
	f := newFixture(t)
	objects, _ := configtest.Decode("hooks.yaml", []byte(policy("p", "")))
	objects[0].Source = "directory"
	f.others[objects[0].Key] = objects[0]
	f.refused(codes.FailedPrecondition, "directory (hooks.yaml:1)", "root", policy("p", ""))
}

func TestDangersHaveToBeAcknowledged(t *testing.T) {
	f := newFixture(t)
	leases := strings.NewReplacer("[apps]", "[coordination.k8s.io]", "[deployments]", "[leases]").Replace(policy("p", ""))
	f.refused(codes.FailedPrecondition, "acknowledge danger-leases", "root", leases)
	f.refused(codes.FailedPrecondition, "acknowledge danger-leases", "root", leases, acknowledging("danger-nodes"))
	a := f.applied("root", leases, acknowledging("danger-leases"))
	if !slices.ContainsFunc(a.GetFindings(), func(f *configv1.Finding) bool { return f.GetSeverity() == "danger" }) {
		t.Errorf("findings %v", a.GetFindings())
	}
	f.applied("root", leases+"\n  timeoutSeconds: 5") // who has acknowledged it once need not again
	root := context.WithValue(t.Context(), caller{}, "root")
	got, err := f.Get(root, &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "p"}})
	if err != nil || got.GetObject().GetAcknowledged()["danger-leases"] != "root" {
		t.Errorf("object %v, %v", got, err)
	}
	changes, err := f.ListChanges(root, &configv1.ListChangesRequest{})
	if err != nil || len(changes.GetChanges()) != 2 {
		t.Fatalf("changes %v, %v", changes, err)
	}
	if first := changes.GetChanges()[1]; first.GetActor() != "root" || !slices.Equal(first.GetAcknowledged(), []string{"danger-leases"}) {
		t.Errorf("the change that acknowledged it is %v", first)
	}
	if second := changes.GetChanges()[0]; len(second.GetAcknowledged()) != 0 {
		t.Errorf("the change after it is %v", second)
	}
}

func TestAnApplySaysWhatIsProbablyNotMeant(t *testing.T) {
	f := newFixture(t)
	codes := func(a *configv1.ApplyResponse) (all []string) {
		for _, f := range a.GetFindings() {
			all = append(all, f.GetCode()+" "+f.GetKey().GetName()+" "+f.GetPath())
		}
		return all
	}
	slow := func(name string) string {
		return strings.NewReplacer("Validating", "Mutating", "policy.", name+".").Replace(policy(name, ""))
	}
	same := f.applied("root", policy("p", "failurePolicy: Ignore")+"\n---\n"+policy("q", "failurePolicy: Ignore"))
	if got := codes(same); !slices.Equal(got, []string{
		"no-host p webhooks[0]", "no-host q webhooks[0]", "pending p ", "pending q ", "same-name q webhooks[0].name",
	}) {
		t.Errorf("findings %q", got)
	}
	f.applied("root", slow("b"))
	// The author of a change learns that it makes another hook late.
	if got := codes(f.applied("root", slow("a"))); !slices.Contains(got, "timeout-budget b webhooks[0].timeoutSeconds") {
		t.Errorf("findings %q", got)
	}
}

func TestKindsOfV1alpha1BeginOpenAndMayBeClosed(t *testing.T) {
	f := newFixture(t)
	external := func(policy string) string {
		return `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: old}
externalAdmissionHooks:
- name: policy.example.com
  clientConfig: {service: {namespace: a, name: b}, caBundle: Y2E=}
  rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  failurePolicy: ` + policy
	}
	f.refused(codes.InvalidArgument, "externalAdmissionHooks[0].failurePolicy", "root", external("Fail"))
	f.applied("root", external("Ignore"))
	f.applied("root", external("Fail"))
}

// initializers is an InitializerConfiguration whose initializers act on Deployments.
func initializers(policy string, names ...string) string {
	text := "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: init}\ninitializers:\n"
	for _, name := range names {
		text += "- name: " + name + ".example.com\n  failurePolicy: " + policy +
			"\n  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]\n"
	}
	return text
}

func TestInitializersBeginOpenAndMayBeClosed(t *testing.T) {
	f := newFixture(t)
	f.refused(codes.InvalidArgument, "InitializerConfiguration \"init\": initializers[0].failurePolicy: a hook of this kind begins with Ignore", "root", initializers("Fail", "a"))
	f.applied("root", initializers("Ignore", "a"))
	f.applied("root", initializers("Fail", "a"))
	f.refused(codes.InvalidArgument, "initializers[0].failurePolicy", "root", strings.Replace(initializers("Fail", "a"), "name: init", "name: other", 1))
}

func TestInitializersThatExceedTheBudgetAreRefused(t *testing.T) {
	f := newFixture(t)
	f.applied("root", initializers("Ignore", "a", "b", "c"))
	f.refused(codes.InvalidArgument, "may have to wait 15s", "root", initializers("Fail", "a", "b", "c"))
	route := "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r}\nspec: {configuration: init, stage: initialize, hosts: [h], timeout: TIMEOUT}"
	f.applied("root", strings.Replace(route, "TIMEOUT", "1s", 1)+"\n---\n"+initializers("Fail", "a", "b", "c"))
	f.refused(codes.InvalidArgument, "may have to wait 30s", "root", strings.Replace(route, "TIMEOUT", "10s", 1))
}

func TestAnOrderOfInitializersThatIsACycleIsRefused(t *testing.T) {
	f := newFixture(t)
	route := func(name, after string) string {
		return "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: " + name + "}\n" +
			"spec: {configuration: init, hook: " + name + ".example.com, stage: initialize, hosts: [h], after: [" + after + ".example.com]}"
	}
	f.applied("root", initializers("Ignore", "a", "b")+"---\n"+route("a", "b"))
	f.refused(codes.InvalidArgument, "a.example.com before b.example.com before a.example.com", "root", route("b", "a"))
}

func TestRolesBoundWhoMayWriteWhat(t *testing.T) {
	f := newFixture(t)
	f.refused(codes.Unauthenticated, "certificate", "", policy("p", ""))
	f.refused(codes.PermissionDenied, "has no role", "ann", policy("p", ""))
	role := func(name, is, more string) string {
		return "apiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: " + name + "}\nspec: {role: " + is + ", identities: [" + name + "]" + more + "}"
	}
	f.applied("root", role("vic", "viewer", "")+"\n---\n"+role("ann", "author", ", namePrefixes: [team-a-]")+
		"\n---\n"+role("eve", "author", ", namePrefixes: [''], clusters: [east]"))
	f.refused(codes.PermissionDenied, "is a viewer", "vic", policy("p", ""))
	f.refused(codes.PermissionDenied, `begins "p"`, "ann", policy("p", ""))
	f.refused(codes.PermissionDenied, `begins "p"`, "ann", route("team-a-r", ""))
	f.refused(codes.PermissionDenied, "only operators", "ann", role("ann", "operator", ""))
	f.applied("ann", policy("team-a-p", ""))
	f.refused(codes.PermissionDenied, "of clusters that are not", "eve", policy("p", ""))
	f.refused(codes.PermissionDenied, "of clusters that are not", "eve", policy("p", "")+"\n---\n"+route("r", ", clusters: [east, west]"))
	f.applied("eve", policy("p", "")+"\n---\n"+route("r", ", clusters: [east]"))
	f.refused(codes.PermissionDenied, "of clusters that are not", "eve", route("r", ""))
}

// TestAuthorsDoNotChangeObjectsThatCannotBeRead has objects that another version of Portcullis could have stored.
func TestAuthorsDoNotChangeObjectsThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.applied("root", `apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: ann}
spec: {role: author, identities: [ann], namePrefixes: [p]}
---
`+policy("p", "")+"\n---\napiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: p}\nspec: {identities: [a]}\n")
	base, err := f.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := []config.Key{{Kind: "Cluster", Name: "p"}, {Kind: "ValidatingWebhookConfiguration", Name: "p"}}
	var edit etcdstore.Edit
	for _, key := range keys {
		r := *base.Records[key]
		r.Manifest = []byte(`{"kind":"` + key.Kind + `","metadata":{"name":"p"},"later":true}`)
		edit.Put = append(edit.Put, &r)
	}
	if _, err := f.store.Commit(t.Context(), base, edit); err != nil {
		t.Fatal(err)
	}

	f.refused(codes.PermissionDenied, "only operators may change it", "ann", policy("p", ""))
	for _, key := range keys {
		remove := &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: key.Kind, Name: key.Name}}
		if _, err := f.Delete(f.as("ann"), remove); status.Code(err) != codes.PermissionDenied {
			t.Errorf("an author removes %s: %v", key, err)
		}
		if _, err := f.Delete(f.as("root"), remove); err != nil {
			t.Errorf("an operator removes %s: %v", key, err)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsUnavailable(t *testing.T) {
	f := newFixture(t)
	broken, err := service.New(service.Options{
		Objects: silent{}, Live: f, Identity: func(context.Context) identity.Peer { return identity.Named("root") }, Operators: identity.Grant{Names: []string{"root"}},
		Inspect: lint.Options{}.InspectOnly, Decoder: configtest.NewDecoder(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = broken.Apply(t.Context(), &configv1.ApplyRequest{Manifests: []*admissionv1.Object{{Raw: []byte(policy("p", ""))}}})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("error %v", err)
	}
}

// silent is a store that is not there.
type silent struct{ service.Objects }

func (silent) Read(context.Context, *etcdstore.State) (*etcdstore.State, error) {
	return nil, errors.New("no route to host")
}

func formatted(n int64) string { return strconv.FormatInt(n, 10) }

func number(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
