package kinds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func route(change func(*HookRoute)) *HookRoute {
	r := &HookRoute{
		Metadata: Metadata{Name: "imagepolicy", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b c"}},
		Spec: HookRouteSpec{
			Configuration: "imagepolicy", Hook: "imagepolicy.example.com", Stage: StageValidate, Stream: &Stream{},
			Hosts: []string{"spiffe://mesh/imagepolicy"}, Clusters: []string{"prod-1"}, Timeout: "250ms",
			Speculate: true, Hedge: hedge("20ms", 5), Shadow: true, AllDenials: true,
		},
	}
	change(r)
	return r
}

func hedge(after string, percent int32) *Hedge { return &Hedge{After: after, Percent: &percent} }

// hedged is a route whose calls are hedged so.
func hedged(h *Hedge) *HookRoute { return route(func(r *HookRoute) { r.Spec.Hedge = h }) }

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

// definitions is a cluster with two CustomResourceDefinitions.
func definitions(change func([]apiextensionsv1.CustomResourceDefinition)) *Cluster {
	crds := make([]apiextensionsv1.CustomResourceDefinition, 2)
	for i, plural := range []string{"widgets", "gadgets"} {
		crds[i].APIVersion, crds[i].Kind, crds[i].Name = "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural+".stable.example.com"
		crds[i].Spec.Group, crds[i].Spec.Names.Plural, crds[i].Spec.Names.Kind = "stable.example.com", plural, strings.ToUpper(plural)
		crds[i].Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}
	}
	change(crds)
	return cluster(func(c *Cluster) { c.Spec.CustomResourceDefinitions = crds })
}

func many(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprint("i", i)
	}
	return items
}

// trustDomains are n authorities.
func trustDomains(n int) []string {
	domains := make([]string, n)
	for i := range domains {
		domains[i] = fmt.Sprint("spiffe://i", i)
	}
	return domains
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
		{"Hosts without a stream serve nothing.", route(func(r *HookRoute) { r.Spec.Stream, r.Spec.Hedge = nil, nil }), []string{"spec.hosts: FieldValueForbidden"}},
		{"Identities are neither empty, padded nor repeated.", route(func(r *HookRoute) { r.Spec.Hosts = []string{"", "a ", "b", "b"} }),
			[]string{"spec.hosts[3]: FieldValueDuplicate", "spec.hosts[0]: FieldValueRequired", "spec.hosts[1]: FieldValueInvalid"}},
		{"MaxListItems hosts are valid.", route(func(r *HookRoute) { r.Spec.Hosts = many(MaxListItems) }), nil},
		{"One more is not.", route(func(r *HookRoute) { r.Spec.Hosts = many(MaxListItems + 1) }), []string{"spec.hosts: FieldValueTooMany"}},
		{"Authorities are fingerprints and trust domains.", cluster(func(c *Cluster) {
			c.Spec.Authorities = []string{"sha256:" + strings.Repeat("0a", 32), "spiffe://mesh"}
		}), nil},
		{"Other authorities are not.", cluster(func(c *Cluster) {
			c.Spec.Authorities = []string{"mesh authority", "spiffe://mesh/ca", "spiffe://mesh/ca"}
		}),
			[]string{"spec.authorities[2]: FieldValueDuplicate", "spec.authorities[0]: FieldValueInvalid", "spec.authorities[1]: FieldValueInvalid", "spec.authorities[2]: FieldValueInvalid"}},
		{"Those of a role are the same.", &Role{Metadata: Metadata{Name: "a"}, Spec: RoleSpec{Role: RoleViewer, Authorities: []string{""}}},
			[]string{"spec.authorities[0]: FieldValueInvalid"}},
		{"MaxAuthorities are valid.", route(func(r *HookRoute) { r.Spec.Authorities = trustDomains(MaxAuthorities) }), nil},
		{"One authority more is not.", route(func(r *HookRoute) { r.Spec.Authorities = trustDomains(MaxAuthorities + 1) }), []string{"spec.authorities: FieldValueTooMany"}},
		{"Without a stream there is nobody to vouch for.", route(func(r *HookRoute) {
			r.Spec.Stream, r.Spec.Hedge, r.Spec.Hosts, r.Spec.Authorities = nil, nil, nil, trustDomains(1)
		}), []string{"spec.authorities: FieldValueForbidden"}},
		{"The shortest timeout is valid.", route(func(r *HookRoute) { r.Spec.Timeout = "1ms" }), nil},
		{"The longest timeout is valid.", route(func(r *HookRoute) { r.Spec.Timeout = "30s" }), nil},
		{"A shorter timeout is not.", route(func(r *HookRoute) { r.Spec.Timeout = "999us" }), []string{"spec.timeout: FieldValueInvalid"}},
		{"A longer timeout is not.", route(func(r *HookRoute) { r.Spec.Timeout = "30001ms" }), []string{"spec.timeout: FieldValueInvalid"}},
		{"A timeout needs a unit.", route(func(r *HookRoute) { r.Spec.Timeout = "5" }), []string{"spec.timeout: FieldValueInvalid"}},
		{"A new hook may be called at once.", route(func(r *HookRoute) { r.Spec.Rotation = RotationImmediate }), nil},
		{"A new hook may wait for a probe.", route(func(r *HookRoute) { r.Spec.Rotation = RotationAfterProbe }), nil},
		{"A rotation is one of two.", route(func(r *HookRoute) { r.Spec.Rotation = "Later" }), []string{"spec.rotation: FieldValueNotSupported"}},
		{"A JSON webhook answers no probes.", route(func(r *HookRoute) {
			r.Spec.Stream, r.Spec.Hosts, r.Spec.Hedge, r.Spec.Rotation = nil, nil, nil, RotationAfterProbe
		}), []string{"spec.rotation: FieldValueForbidden"}},
		{"A hedge need not say more.", hedged(&Hedge{}), nil},
		{"The shortest delay and the fewest calls are valid.", hedged(hedge("1ms", 1)), nil},
		{"The longest delay and the most calls are valid.", hedged(hedge("30s", 50)), nil},
		{"Less is not.", hedged(hedge("999us", 0)), []string{"spec.hedge.after: FieldValueInvalid", "spec.hedge.percent: FieldValueInvalid"}},
		{"More is not.", hedged(hedge("30001ms", 51)), []string{"spec.hedge.after: FieldValueInvalid", "spec.hedge.percent: FieldValueInvalid"}},
		{"A delay needs a unit.", hedged(hedge("20", 5)), []string{"spec.hedge.after: FieldValueInvalid"}},
		{"A JSON webhook has no other replica.", route(func(r *HookRoute) { r.Spec.Stream, r.Spec.Hosts = nil, nil }), []string{"spec.hedge: FieldValueForbidden"}},

		{"A cluster with static namespaces is valid.", cluster(func(*Cluster) {}), nil},
		{"A cluster that nobody may call is valid.", cluster(func(c *Cluster) { c.Spec = ClusterSpec{} }), nil},
		{"A configuration may be two seconds old.", cluster(func(c *Cluster) { c.Spec.MaxConfigurationAge = "2s" }), nil},
		{"It may be ten minutes old.", cluster(func(c *Cluster) { c.Spec.MaxConfigurationAge = "10m" }), nil},
		{"It is listed too rarely to be younger.", cluster(func(c *Cluster) { c.Spec.MaxConfigurationAge = "1999ms" }), []string{"spec.maxConfigurationAge: FieldValueInvalid"}},
		{"It may not be older.", cluster(func(c *Cluster) { c.Spec.MaxConfigurationAge = "10m1ns" }), []string{"spec.maxConfigurationAge: FieldValueInvalid"}},
		{"A kubeconfig is an absolute path.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{Kubeconfig: "/etc/prod-1"} }), nil},
		{"A relative one is not valid.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{Kubeconfig: "prod-1"} }), []string{"spec.namespaces.kubeconfig: FieldValueInvalid"}},
		{"No namespaces at all is one of the sources.", cluster(func(c *Cluster) { c.Spec.Namespaces.Static = map[string]map[string]string{} }), nil},
		{"Without any source there is nothing to say.", cluster(func(c *Cluster) { c.Spec.Namespaces = &NamespaceSource{} }), []string{"spec.namespaces: FieldValueRequired"}},
		{"Two sources would contradict each other.", cluster(func(c *Cluster) { c.Spec.Namespaces.Kubeconfig = "/etc/prod-1" }), []string{"spec.namespaces: FieldValueRequired"}},
		{"Static namespaces and labels are those of Kubernetes.", cluster(func(c *Cluster) {
			c.Spec.Namespaces.Static = map[string]map[string]string{"Default": nil, "default": {"a": "b c"}}
		}), []string{"spec.namespaces.static[Default]: FieldValueInvalid", "spec.namespaces.static[default]: FieldValueInvalid"}},
		{"A cluster that is asked needs nothing else.", cluster(func(c *Cluster) { c.Spec.Namespaces, c.Spec.Kubeconfig = nil, "/etc/prod-1" }), nil},
		{"Its kubeconfig is an absolute path.", cluster(func(c *Cluster) { c.Spec.Namespaces, c.Spec.Kubeconfig = nil, "prod-1" }), []string{"spec.kubeconfig: FieldValueInvalid"}},
		{"What it is asked for the document does not say.", cluster(func(c *Cluster) {
			c.Spec.Kubeconfig, c.Spec.APIVersions = "/etc/prod-1", []string{}
			c.Spec.CustomResourceDefinitions = []apiextensionsv1.CustomResourceDefinition{}
		}), []string{"spec.namespaces: FieldValueForbidden", "spec.apiVersions: FieldValueForbidden", "spec.customResourceDefinitions: FieldValueForbidden"}},
		{"Group versions are those of an apiVersion.", cluster(func(c *Cluster) { c.Spec.APIVersions = []string{"v1", "apps/v1", "autoscaling/v2beta2"} }), nil},
		{"... and nothing else.", cluster(func(c *Cluster) { c.Spec.APIVersions = []string{"", "a/b/c", "apps/", "v1", "v1"} }), []string{
			"spec.apiVersions[4]: FieldValueDuplicate", "spec.apiVersions[0]: FieldValueInvalid",
			"spec.apiVersions[1]: FieldValueInvalid", "spec.apiVersions[2]: FieldValueInvalid",
		}},
		{"A cluster that serves nothing is a slip.", cluster(func(c *Cluster) { c.Spec.APIVersions = []string{} }), []string{"spec.apiVersions: FieldValueRequired"}},
		{"A definition is as the cluster shows it.", definitions(func([]apiextensionsv1.CustomResourceDefinition) {}), nil},
		{"It says what it is.", definitions(func(crds []apiextensionsv1.CustomResourceDefinition) {
			crds[0].APIVersion, crds[1].Kind = "apiextensions.k8s.io/v1beta1", "Widget"
		}), []string{"spec.customResourceDefinitions[0].apiVersion: FieldValueNotSupported", "spec.customResourceDefinitions[1].kind: FieldValueNotSupported"}},
		{"Its name is its resource.", definitions(func(crds []apiextensionsv1.CustomResourceDefinition) { crds[0].Spec.Group = "example.com" }),
			[]string{"spec.customResourceDefinitions[0].metadata.name: FieldValueInvalid"}},
		{"It has a version.", definitions(func(crds []apiextensionsv1.CustomResourceDefinition) { crds[0].Spec.Versions = nil }),
			[]string{"spec.customResourceDefinitions[0].spec: FieldValueInvalid"}},
		{"Its conversion is one that there is.", definitions(func(crds []apiextensionsv1.CustomResourceDefinition) {
			crds[1].Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		}), []string{"spec.customResourceDefinitions[1].spec: FieldValueInvalid"}},
		{"It stands there once.", definitions(func(crds []apiextensionsv1.CustomResourceDefinition) { crds[1] = crds[0] }),
			[]string{"spec.customResourceDefinitions[1].metadata.name: FieldValueDuplicate"}},
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

func TestDefinitionsAndVersionsAreBounded(t *testing.T) {
	for n, want := range map[int]int{MaxListItems: 0, MaxListItems + 1: 1} {
		one := definitions(func([]apiextensionsv1.CustomResourceDefinition) {}).Spec.CustomResourceDefinitions[0]
		c := cluster(func(c *Cluster) { c.Spec.APIVersions = many(n) })
		for _, name := range many(n) {
			crd := one
			crd.Name, crd.Spec.Names.Plural = name+".stable.example.com", name
			c.Spec.CustomResourceDefinitions = append(c.Spec.CustomResourceDefinitions, crd)
		}
		if errs := c.Validate(); len(errs) != 2*want {
			t.Errorf("%d of each: %d errors", n, len(errs))
		}
	}
}
