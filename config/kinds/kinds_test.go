package kinds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func route(change func(*HookRoute)) *HookRoute {
	r := &HookRoute{
		Metadata: Metadata{Name: "imagepolicy", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b c"}},
		Spec: HookRouteSpec{
			Configuration: "imagepolicy", Hook: "imagepolicy.example.com", Stage: StageValidate, Stream: &Stream{},
			Hosts: []string{"spiffe://mesh/imagepolicy"}, Clusters: []string{"prod-1"}, Timeout: "250ms",
		},
	}
	change(r)
	return r
}

func cluster(change func(*Cluster)) *Cluster {
	c := &Cluster{
		Metadata: Metadata{Name: "prod-1"},
		Spec: ClusterSpec{
			Identities: []string{"kube-apiserver"},
			Namespaces: &NamespaceSource{Static: map[string]map[string]string{"default": {"env": "dev"}, "kube-system": nil}},
		},
	}
	change(c)
	return c
}

func many(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprint("i", i)
	}
	return items
}

func TestValidate(t *testing.T) {
	type document interface{ Validate() field.ErrorList }
	for _, tc := range []struct {
		name string
		doc  document
		want []string // field: kind of error
	}{
		{"A full route is valid.", route(func(*HookRoute) {}), nil},
		{"A route needs nothing but its configuration.", &HookRoute{Metadata: Metadata{Name: "a"}, Spec: HookRouteSpec{Configuration: "a"}}, nil},
		{"A stream that nobody may serve yet is valid.", route(func(r *HookRoute) { r.Spec.Hosts = nil }), nil},
		{"An empty route lacks its names.", &HookRoute{}, []string{"metadata.name: FieldValueRequired", "spec.configuration: FieldValueRequired"}},
		{"Names are those of Kubernetes objects.", route(func(r *HookRoute) {
			r.Metadata.Name, r.Spec.Configuration, r.Spec.Hook, r.Spec.Clusters = "A b", "a/b", "short", []string{"UP"}
		}), []string{"metadata.name: FieldValueInvalid", "spec.configuration: FieldValueInvalid", "spec.hook: FieldValueInvalid", "spec.clusters[0]: FieldValueInvalid"}},
		{"Labels and annotations are those of Kubernetes objects.", route(func(r *HookRoute) {
			r.Metadata.Labels, r.Metadata.Annotations = map[string]string{"a": "b c"}, map[string]string{"a b": ""}
		}), []string{"metadata.labels: FieldValueInvalid", "metadata.annotations: FieldValueInvalid"}},
		{"A stage is one of two.", route(func(r *HookRoute) { r.Spec.Stage = "reinvoke" }), []string{"spec.stage: FieldValueNotSupported"}},
		{"Hosts without a stream serve nothing.", route(func(r *HookRoute) { r.Spec.Stream = nil }), []string{"spec.hosts: FieldValueForbidden"}},
		{"Identities are neither empty, padded nor repeated.", route(func(r *HookRoute) { r.Spec.Hosts = []string{"", "a ", "b", "b"} }),
			[]string{"spec.hosts[3]: FieldValueDuplicate", "spec.hosts[0]: FieldValueRequired", "spec.hosts[1]: FieldValueInvalid"}},
		{"MaxListItems hosts are valid.", route(func(r *HookRoute) { r.Spec.Hosts = many(MaxListItems) }), nil},
		{"One more is not.", route(func(r *HookRoute) { r.Spec.Hosts = many(MaxListItems + 1) }), []string{"spec.hosts: FieldValueTooMany"}},
		{"The shortest timeout is valid.", route(func(r *HookRoute) { r.Spec.Timeout = "1ms" }), nil},
		{"The longest timeout is valid.", route(func(r *HookRoute) { r.Spec.Timeout = "30s" }), nil},
		{"A shorter timeout is not.", route(func(r *HookRoute) { r.Spec.Timeout = "999us" }), []string{"spec.timeout: FieldValueInvalid"}},
		{"A longer timeout is not.", route(func(r *HookRoute) { r.Spec.Timeout = "30001ms" }), []string{"spec.timeout: FieldValueInvalid"}},
		{"A timeout needs a unit.", route(func(r *HookRoute) { r.Spec.Timeout = "5" }), []string{"spec.timeout: FieldValueInvalid"}},

		{"A cluster with static namespaces is valid.", cluster(func(*Cluster) {}), nil},
		{"A cluster that nobody may call is valid.", cluster(func(c *Cluster) { c.Spec = ClusterSpec{} }), nil},
		{"A kubeconfig is an absolute path.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{Kubeconfig: "/etc/prod-1"} }), nil},
		{"A relative one is not valid.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{Kubeconfig: "prod-1"} }), []string{"spec.namespaces.kubeconfig: FieldValueInvalid"}},
		{"No namespaces at all is one of the sources.", cluster(func(c *Cluster) { c.Spec.Namespaces.Static = map[string]map[string]string{} }), nil},
		{"Without any source there is nothing to say.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{} }), []string{"spec.namespaces: FieldValueRequired"}},
		{"Two sources would contradict each other.", cluster(func(c *Cluster) { c.Spec.Namespaces.Kubeconfig = "/etc/prod-1" }), []string{"spec.namespaces: FieldValueRequired"}},
		{"Static namespaces and labels are those of Kubernetes.", cluster(func(c *Cluster) {
			c.Spec.Namespaces.Static = map[string]map[string]string{"Default": nil, "default": {"a": "b c"}}
		}), []string{"spec.namespaces.static[Default]: FieldValueInvalid", "spec.namespaces.static[default]: FieldValueInvalid"}},
		{"An identity is not empty.", cluster(func(c *Cluster) { c.Spec.Identities = []string{""} }), []string{"spec.identities[0]: FieldValueRequired"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, err := range tc.doc.Validate() {
				got = append(got, err.Field+": "+strings.ReplaceAll(string(err.Type), " ", ""))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
		})
	}
}

func TestStaticNamespacesAreBounded(t *testing.T) {
	for n, want := range map[int]int{MaxStaticNamespaces: 0, MaxStaticNamespaces + 1: 1} {
		static := map[string]map[string]string{}
		for _, name := range many(n) {
			static[name] = nil
		}
		c := cluster(func(c *Cluster) { c.Spec.Namespaces.Static = static })
		if errs := c.Validate(); len(errs) != want {
			t.Errorf("%d namespaces: %v", n, errs)
		}
	}
}
