package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// author applies any document within its prefix and its cluster, and makes every request.
func author() role {
	return role{
		name: "an author",
		inputs: []string{
			"a document of the configuration", "rules, in the entries and in the index of a dispatcher", "an apply, and other calls of ConfigService", "names of initializers",
			"an answer that is not read: of ConfigService, AnalysisService or InitializerService, over gRPC",
			"an expression of a matchCondition or of a policy, while it is compiled or evaluated", "a report of a dispatcher to the others",
		},
		documents: func(*attack) []string {
			return []string{mesh.Cluster(tenantName, tenantName, ""), `apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: tenant}
spec: {role: author, identities: [tenant], namePrefixes: [tenant-], clusters: [tenant]}
`}
		},
		begin: func(a *attack) {
			client, all := configv1.NewConfigServiceClient(a.dial(tenantName)), applied()
			a.act(8, func(ctx context.Context, n int) string {
				_, err := client.Apply(ctx, &configv1.ApplyRequest{Manifests: all[n%len(all)](n), DryRun: n%5 == 4})
				return code(err)
			})
			a.review("validate", []body{whole(func(n int) []byte { return reviewOf(n, 100) })}) // which its policies judge
			watchers := a.dials(tenantName, 20)
			a.act(300, func(ctx context.Context, n int) string {
				client := configv1.NewConfigServiceClient(watchers[n%len(watchers)])
				if n%2 == 0 {
					return code(follow(client.Watch(ctx, &configv1.WatchRequest{})))
				}
				never := map[string]string{"etcd": "1000000000"}
				return code(follow(client.Wait(ctx, &configv1.WaitRequest{Revision: &configv1.Revision{Sources: never}})))
			})
			reads := reads(client, analysisv1.NewAnalysisServiceClient(a.dial(tenantName)))
			a.act(16, func(ctx context.Context, n int) string { return code(reads[n%len(reads)](ctx)) })
			a.ends = append(a.ends, func() { a.deleteAll(client) })
		},
	}
}

// reads are all questions of a reader.
func reads(config configv1.ConfigServiceClient, analysis analysisv1.AnalysisServiceClient) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { _, err := config.List(ctx, &configv1.ListRequest{}); return err },
		func(ctx context.Context) error {
			_, err := config.ListHooks(ctx, &configv1.ListHooksRequest{})
			return err
		},
		func(ctx context.Context) error {
			_, err := config.ListHosts(ctx, &configv1.ListHostsRequest{})
			return err
		},
		func(ctx context.Context) error {
			_, err := config.ListChanges(ctx, &configv1.ListChangesRequest{})
			return err
		},
		func(ctx context.Context) error {
			_, err := config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
			return err
		},
		func(ctx context.Context) error { return follow(config.Backup(ctx, &configv1.BackupRequest{})) },
		func(ctx context.Context) error {
			_, err := analysis.ListLatencies(ctx, &analysisv1.ListLatenciesRequest{})
			return err
		},
		func(ctx context.Context) error {
			_, err := analysis.ListReviews(ctx, &analysisv1.ListReviewsRequest{})
			return err
		},
		func(ctx context.Context) error {
			_, err := analysis.ListShadows(ctx, &analysisv1.ListShadowsRequest{})
			return err
		},
	}
}

// follow reads a stream to its end.
func follow[T any](stream grpc.ServerStreamingClient[T], err error) error {
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

// deleteAll deletes all that the tenant has applied.
func (a *attack) deleteAll(client configv1.ConfigServiceClient) {
	list, err := client.List(a.Context(), &configv1.ListRequest{})
	if err != nil {
		a.Error(err)
	}
	for _, o := range slices.Backward(list.GetObjects()) { // a HookRoute after its hook, which could see other clusters without it
		if !strings.HasPrefix(o.GetKey().GetName(), "tenant-") {
			continue
		}
		if _, err := client.Delete(a.Context(), &configv1.DeleteRequest{Key: o.GetKey()}); err != nil {
			a.Errorf("delete %v: %v", o.GetKey(), err)
		}
	}
}

// applied are the manifests of an apply.
func applied() []func(n int) []*admissionv1.Object {
	many := func(prefix string, count int) string {
		var names []string
		for n := range count {
			names = append(names, fmt.Sprintf("%q", fmt.Sprintf("%s%d", prefix, n)))
		}
		return strings.Join(names, ",")
	}
	object := func(n int, webhooks string) []*admissionv1.Object {
		name := fmt.Sprintf("tenant-%d", n%50)
		return []*admissionv1.Object{
			{Raw: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[%s]}`, name, webhooks)},
			{Raw: fmt.Appendf(nil, `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":%q},"spec":{"configuration":%[1]q,"stream":{},"hosts":["tenant"],"clusters":["tenant"]}}`, name)},
		}
	}
	hook := func(n int, groups, versions, resources, conditions string) string {
		return fmt.Sprintf(`{"name":"h%d.tenant.example","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Ignore","matchConditions":[%s],
			"rules":[{"apiGroups":[%s],"apiVersions":[%s],"operations":["*"],"resources":[%s]}]}`, n, conditions, groups, versions, resources)
	}
	expensive := `object.metadata.labels.all(a, object.metadata.labels.all(b, object.metadata.labels.all(c, object.metadata.labels.all(d, a != b || c != d))))`
	var conditions []string
	for n := range 64 {
		conditions = append(conditions, fmt.Sprintf(`{"name":"c%d","expression":%q}`, n, expensive))
	}
	var hooks []string
	for n := range 500 {
		hooks = append(hooks, hook(n, `"apps"`, `"v1"`, `"deployments"`, strings.Join(conditions[:4], ",")))
	}
	return []func(n int) []*admissionv1.Object{
		func(n int) []*admissionv1.Object { return object(n, hook(n, `"apps"`, `"v1"`, `"deployments"`, "")) },
		func(n int) []*admissionv1.Object {
			return object(n, hook(n, many("g", 20), many("v", 20), many("r", 20), ""))
		},
		func(n int) []*admissionv1.Object {
			return object(n, hook(n, many("g", 300), many("v", 300), many("r", 300), ""))
		},
		func(n int) []*admissionv1.Object {
			return object(n, hook(n, `"*"`, `"*"`, `"*"`, strings.Join(conditions, ",")))
		},
		func(n int) []*admissionv1.Object { return object(n, strings.Join(hooks, ",")) },
		func(n int) []*admissionv1.Object { // calls that are large before their cost counts
			return object(n, hook(n, `"*"`, `"*"`, `"*"`, `{"name":"a","expression":"lists.range(5000000).size() > 0"},
				{"name":"b","expression":"'a'.matches('(a{30}){30}')"}`))
		},
		func(n int) []*admissionv1.Object { // a policy of many validations, which each Pod of the tenant fails
			return policyOf(n, 500, "false")
		},
		func(n int) []*admissionv1.Object { // a policy whose evaluation spends its budget
			return policyOf(n, 20, `lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))`)
		},
		func(n int) []*admissionv1.Object { // a policy of more expressions than are compiled
			return policyOf(n, 20_000, "true")
		},
		func(n int) []*admissionv1.Object { // an annotation that is too long
			return []*admissionv1.Object{{Raw: fmt.Appendf(nil, `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"tenant-a","annotations":{"a":%q}}}`, strings.Repeat("a", 4<<20))}}
		},
		func(n int) []*admissionv1.Object {
			var all []*admissionv1.Object
			for m := range 1001 {
				all = append(all, object(m, "")...)
			}
			return all
		},
		func(n int) []*admissionv1.Object { // initializers
			return []*admissionv1.Object{{Raw: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"tenant-%d"},"initializers":[
				{"name":"same.tenant.example","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}`, n%50)}}
		},
		func(n int) []*admissionv1.Object {
			return []*admissionv1.Object{{Raw: []byte(strings.Repeat("[", 1<<20))}}
		},
	}
}

// policyOf is a policy of the tenant with as many validations, its binding, and its route.
func policyOf(n, validations int, expression string) []*admissionv1.Object {
	name, one := fmt.Sprintf("tenant-p%d", n%10), fmt.Sprintf(`{"expression":%q}`, expression)
	return []*admissionv1.Object{
		{Raw: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{"failurePolicy":"Ignore",
			"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["pods"]}]},"validations":[%s]}}`,
			name, one+strings.Repeat(","+one, validations-1))},
		{Raw: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},
			"spec":{"policyName":%[1]q,"validationActions":["Deny","Audit"]}}`, name)},
		{Raw: fmt.Appendf(nil, `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":%q},
			"spec":{"configuration":"ValidatingAdmissionPolicy/%[1]s","clusters":["tenant"]}}`, name)},
	}
}

// controller has an initializer whose objects it does not let go.
func controller() role {
	return role{
		name: "a controller", inputs: []string{"a staged object", "calls of a controller"},
		documents: func(*attack) []string {
			return []string{mesh.Cluster(tenantName, tenantName, ""), `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: tenant}
initializers:
- {name: slow.tenant.example, failurePolicy: Ignore, rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
`, `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: tenant}
spec: {configuration: tenant, hook: slow.tenant.example, stage: initialize, hosts: [tenant], clusters: [tenant]}
`}
		},
		begin: func(a *attack) {
			client := initializerv1.NewInitializerServiceClient(a.dial(tenantName))
			all := &initializerv1.ListRequest{Cluster: tenantName, Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}}
			a.review("mutate", []body{whole(func(n int) []byte { return reviewOf(n, 1<<20) }), whole(func(n int) []byte { return reviewOf(n, 500_000) })})
			a.act(8, func(ctx context.Context, n int) string { // changes and deletes
				list, err := client.List(ctx, all)
				if err != nil {
					return code(err)
				}
				for _, o := range list.GetObjects() {
					large := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + o.GetKey().GetName() + `","namespace":"default"},"a":"` + strings.Repeat("a", 1<<20) + `"}`)
					_, err = client.Update(ctx, &initializerv1.UpdateRequest{
						Key: o.GetKey(), ResourceVersion: o.GetResourceVersion(), Pending: o.GetPending(), Object: &admissionv1.Object{Raw: large},
					})
					a.count(code(err))
				}
				return code(err)
			})
			watchers := a.dials(tenantName, 40)
			a.act(600, func(ctx context.Context, n int) string { // reads nothing
				watch, err := initializerv1.NewInitializerServiceClient(watchers[n%len(watchers)]).Watch(ctx, &initializerv1.WatchRequest{Selection: all})
				if err == nil {
					_, err = watch.Recv()
				}
				if err == nil {
					<-ctx.Done()
				}
				return code(err)
			})
			a.staged()
		},
	}
}

// staged asks the edge for staged objects over HTTP, and writes bodies that do not end.
func (a *attack) staged() {
	url := a.Bridge + initializers.Path(tenantName) + "/api/v1/namespaces/default/pods"
	client := a.client(a.certificate(a.Mesh[tenantName]))
	a.act(40, func(ctx context.Context, n int) string {
		method, content := http.MethodGet, io.Reader(nil)
		target := url
		switch n % 4 {
		case 0:
			method, target, content = http.MethodPut, url+"/pod-1", io.MultiReader(strings.NewReader(strings.Repeat(" ", 1<<20)), until(ctx))
		case 1:
			target += "?watch=1"
		case 2:
			method, target, content = http.MethodPut, url+"/pod-1", io.LimitReader(spaces{}, 1<<30)
		}
		request, err := http.NewRequestWithContext(ctx, method, target, content)
		if err != nil {
			return err.Error()
		}
		return outcomeOf(client.Do(request))
	})
}
