package service_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// The people of these tests, by their rights.
const rolesOfPeople = `apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: viewers}
spec: {role: viewer, identities: [viewer]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: authors}
spec: {role: author, identities: [author], namePrefixes: [team-]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: authors-east}
spec: {role: author, identities: [eastern], namePrefixes: [""], clusters: [east]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: operators}
spec: {role: operator, identities: [operator]}`

// errTaken ends a stream whose first message has come.
var errTaken = errors.New("taken")

// takes is a stream whose reader takes one message.
type takes[T any] struct {
	grpc.ServerStreamingServer[T]

	ctx context.Context
}

func (s *takes[T]) Context() context.Context { return s.ctx }

func (s *takes[T]) Send(*T) error { return errTaken }

func TestEachMethodAsksForARole(t *testing.T) {
	f := newFixture(t)
	routed := policy("east-p", "") + "\n---\n" + clusterRoute("east-r", "east-p", "east")
	f.applied("root", rolesOfPeople+"\n---\n"+policy("team-p", "")+"\n---\n"+policy("other", "")+"\n---\n"+routed)

	remove := func(kind, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f.Delete(ctx, &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: kind, Name: name}, DryRun: true})
			return err
		}
	}
	apply := func(documents ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			r := &configv1.ApplyRequest{DryRun: true}
			for _, d := range documents {
				r.Manifests = append(r.Manifests, &admissionv1.Object{Raw: []byte(d)})
			}
			_, err := f.Apply(ctx, r)
			return err
		}
	}
	everybody, nobody := "viewer author eastern operator root", "root operator"
	for name, test := range map[string]struct {
		call func(context.Context) error
		may  string
	}{
		"Get": {func(ctx context.Context) error {
			_, err := f.Get(ctx, &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Role", Name: "operators"}})
			return err
		}, everybody},
		"Get of what is not there": {func(ctx context.Context) error {
			if _, err := f.Get(ctx, &configv1.GetRequest{Key: policyKey}); status.Code(err) != codes.NotFound {
				return err
			}
			return nil
		}, everybody},
		"List": {func(ctx context.Context) error { _, err := f.List(ctx, &configv1.ListRequest{}); return err }, everybody},
		"ListDispatchers": {func(ctx context.Context) error {
			_, err := f.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
			return err
		}, everybody},
		"ListHosts": {func(ctx context.Context) error {
			_, err := f.ListHosts(ctx, &configv1.ListHostsRequest{})
			return err
		}, everybody},
		"ListHooks": {func(ctx context.Context) error {
			_, err := f.ListHooks(ctx, &configv1.ListHooksRequest{})
			return err
		}, everybody},
		"ListLatencies": {func(ctx context.Context) error {
			_, err := f.ListLatencies(ctx, &analysisv1.ListLatenciesRequest{})
			return err
		}, everybody},
		"ListReviews": {func(ctx context.Context) error {
			_, err := f.ListReviews(ctx, &analysisv1.ListReviewsRequest{})
			return err
		}, everybody},
		"ListShadows": {func(ctx context.Context) error {
			_, err := f.ListShadows(ctx, &analysisv1.ListShadowsRequest{})
			return err
		}, everybody},
		"ListChanges": {func(ctx context.Context) error {
			_, err := f.ListChanges(ctx, &configv1.ListChangesRequest{})
			return err
		}, everybody},
		"Watch": {func(ctx context.Context) error {
			return f.Watch(&configv1.WatchRequest{}, &takes[configv1.WatchResponse]{ctx: ctx})
		}, everybody},
		"Wait": {func(ctx context.Context) error {
			return f.Wait(&configv1.WaitRequest{}, &takes[configv1.WaitResponse]{ctx: ctx})
		}, everybody},
		"Backup": {func(ctx context.Context) error {
			return f.Backup(&configv1.BackupRequest{}, &takes[configv1.BackupResponse]{ctx: ctx})
		}, nobody},
		"MayCall":                                        {func(ctx context.Context) error { return f.MayCall(ctx) }, everybody},
		"Apply of a name with the prefix":                {apply(policy("team-q", "")), nobody + " author"},
		"Apply of another name":                          {apply(policy("q", "")), nobody},
		"Apply of what is nonsense":                      {apply("kind: Nonsense"), "none"},
		"Apply of a route to another name":               {apply(clusterRoute("team-r", "other", "east")), nobody},
		"Apply for a cluster":                            {apply(policy("q", ""), clusterRoute("r", "q", "east")), nobody + " eastern"},
		"Apply for another cluster":                      {apply(policy("q", ""), clusterRoute("r", "q", "west")), nobody},
		"Apply of a hook that another cluster's is":      {apply(clusterRoute("r", "other", "east")), nobody},
		"Apply of a route away from a cluster":           {apply(clusterRoute("east-r", "other", "east")), nobody},
		"Apply of a Role":                                {apply("apiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: team-r}\nspec: {role: operator, identities: [author]}"), nobody},
		"Apply of a Cluster":                             {apply("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: team-c}\nspec: {identities: [a]}"), nobody},
		"Delete of a name with the prefix":               {remove("ValidatingWebhookConfiguration", "team-p"), nobody + " author"},
		"Delete of another name":                         {remove("ValidatingWebhookConfiguration", "other"), nobody},
		"Delete of what one's cluster alone has":         {remove("ValidatingWebhookConfiguration", "east-p"), nobody + " eastern"},
		"Delete of the route that keeps it to a cluster": {remove("HookRoute", "east-r"), nobody},
		"Delete of a Role":                               {remove("Role", "operators"), nobody},
	} {
		t.Run(name, func(t *testing.T) {
			for _, who := range []string{"viewer", "author", "eastern", "operator", "root", "stranger", ""} {
				code := status.Code(ignoreTaken(test.call(f.as(who))))
				want := codes.PermissionDenied
				switch {
				case who == "":
					want = codes.Unauthenticated
				case test.may == "none" && who != "stranger":
					want = codes.InvalidArgument
				case contains(test.may, who):
					want = codes.OK
				}
				if code != want {
					t.Errorf("%q: %s, want %s", who, code, want)
				}
			}
		})
	}
}

func TestARouteOfAnotherIsNotTakenOver(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople+"\n---\n"+policy("other", "")+"\n---\n"+policy("team-p", "")+"\n---\n"+clusterRoute("team-r", "other", "east"))
	f.refused(codes.PermissionDenied, `begins "other"`, "author", clusterRoute("team-r", "team-p", "east"))
}

func ignoreTaken(err error) error {
	if errors.Is(err, errTaken) {
		return nil
	}
	return err
}

// clusterRoute is a route of a configuration that keeps it to a cluster.
func clusterRoute(name, configuration, cluster string) string {
	return "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: " + name + "}\nspec: {configuration: " + configuration +
		", stream: {}, clusters: [" + cluster + "]}"
}

func contains(words, word string) bool { return slices.Contains(strings.Fields(words), word) }

func TestAnAuthorNamesHostsOfItsRoleAlone(t *testing.T) {
	f := newFixture(t)
	const roles = `apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: one}
spec: {role: author, identities: [ann], namePrefixes: [""], webhookHosts: ["*.policy.svc", hooks.example.com]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: two}
spec: {role: author, identities: [ann], namePrefixes: [""], clusters: [east]}`
	f.applied("root", roles)
	at := func(config string) string {
		return strings.Replace(policy("p", "failurePolicy: Ignore"), "clientConfig: {}", "clientConfig: {"+config+"}", 1)
	}
	https := "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r}\nspec: {configuration: p, clusters: [east]}"
	for _, good := range []string{
		at("service: {namespace: policy, name: a}"), at("url: 'https://hooks.example.com:8443/x'"), at("url: 'https://Hooks.Example.com'"),
		at(""), at("url: 'https://anywhere.example'") + "\n---\n" + https,
	} {
		f.applied("ann", good, dryRun)
	}
	for _, bad := range []string{
		at("service: {namespace: other, name: policy}"), at("url: 'https://anywhere.example'"), at("url: 'https://hooks.example.com.'"),
		at("url: 'https://anywhere.example'") + "\n---\n" + strings.Replace(https, "[east]", "[east, west]", 1),
	} {
		f.refused(codes.PermissionDenied, "none of the webhookHosts", "ann", bad)
	}
	f.applied("root", at("url: 'https://anywhere.example'"))
	f.refused(codes.PermissionDenied, "none of the webhookHosts", "ann", at("url: 'https://anywhere.example/other'"))
	f.applied("ann", at("service: {namespace: policy, name: a}"))
}

func TestARoleCountsTheAuthorityOfACaller(t *testing.T) {
	f := newFixture(t)
	const ours, theirs = "spiffe://ours", "spiffe://theirs"
	if _, err := f.apply("root", `apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: viewers}
spec: {role: viewer, identities: [ann], authorities: ["`+ours+`"]}
`); err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]codes.Code{ours: codes.OK, theirs: codes.PermissionDenied, "": codes.PermissionDenied} {
		ctx := context.WithValue(t.Context(), caller{}, identity.Named("ann", authority))
		if _, err := f.List(ctx, &configv1.ListRequest{}); status.Code(err) != want {
			t.Errorf("vouched for by %q: %v, want %v", authority, err, want)
		}
	}
}
