package kinds

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestTheBundleOfEntriesIsBounded(t *testing.T) {
	for size, want := range map[int]int{MaxCABundle: 0, MaxCABundle + 1: 1} {
		ca := authority(t)
		c := registered(func(r *Registration) { r.CABundle = slices.Concat(ca, bytes.Repeat([]byte("\n"), size-len(ca))) })
		if errs := c.Validate(); len(errs) != want {
			t.Errorf("%d bytes: %v", size, errs)
		}
	}
}

// registered is a cluster whose entries are kept.
func registered(change func(*Registration)) *Cluster {
	r := &Registration{URL: "https://mesh.example.com"}
	change(r)
	return cluster(func(c *Cluster) { c.Spec.Kubeconfig, c.Spec.Namespaces, c.Spec.Registration = "/etc/prod-1", nil, r })
}

// following is a cluster whose webhook configurations are followed.
func following(change func(*Follow)) *Cluster {
	f := &Follow{
		Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		WebhookHosts: []string{"hooks.example.com", "*.policy.svc", "10.0.0.1", "fd00::1"},
	}
	change(f)
	return cluster(func(c *Cluster) { c.Spec.Kubeconfig, c.Spec.Namespaces, c.Spec.Follow = "/etc/prod-1", nil, f })
}

// bypassing is a cluster with a bypass.
func bypassing(b Bypass) *Cluster { return cluster(func(c *Cluster) { c.Spec.Bypass = &b }) }

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

// capabilities are n of them.
func capabilities(n int) (all []Capability) {
	for i := range n {
		all = append(all, Capability{Name: fmt.Sprint("c", i), SHA256: strings.Repeat(fmt.Sprintf("a%x", i), 32)})
	}
	return all
}

// capable is a cluster with one capability.
func capable(change func(*Capability)) *Cluster {
	return cluster(func(c *Cluster) {
		c.Spec.Capabilities = capabilities(1)
		change(&c.Spec.Capabilities[0])
	})
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
	var written documents
	defer written.compare(t)
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
		{"A controller acts for an initializer, and has no stream.", route(func(r *HookRoute) {
			r.Spec = HookRouteSpec{
				Configuration: "sidecars", Stage: StageInitialize, Hosts: []string{"sidecars"}, Authorities: []string{"spiffe://mesh"},
				After: []string{"images.example.com"}, Before: []string{"a.example.com", "b.example.com"},
			}
		}), nil},
		{"Only the hosts of initializers need no stream.", route(func(r *HookRoute) {
			r.Spec = HookRouteSpec{Configuration: "a", Stage: StageMutate, Hosts: []string{"a"}, Authorities: []string{"spiffe://mesh"}}
		}), []string{"spec.hosts: FieldValueForbidden", "spec.authorities: FieldValueForbidden"}},
		{"An order is made of names of initializers.", route(func(r *HookRoute) {
			r.Spec.After, r.Spec.Before = []string{"a.example.com", "a.example.com"}, []string{"short"}
		}), []string{"spec.after[1]: FieldValueDuplicate", "spec.before[0]: FieldValueInvalid"}},
		{"An order has a bound.", route(func(r *HookRoute) {
			for i := range MaxOrdered + 1 {
				r.Spec.After = append(r.Spec.After, fmt.Sprintf("i%d.example.com", i))
			}
		}), []string{"spec.after: FieldValueTooMany"}},
		{"A stage is one of three.", route(func(r *HookRoute) { r.Spec.Stage = "reinvoke" }), []string{"spec.stage: FieldValueNotSupported"}},
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
		{"A timeout of 64 bytes is valid.", route(func(r *HookRoute) { r.Spec.Timeout = strings.Repeat("0", 61) + "1ms" }), nil},
		{"A longer text is not.", route(func(r *HookRoute) { r.Spec.Timeout = strings.Repeat("0", 62) + "1ms" }), []string{"spec.timeout: FieldValueTooLong"}},
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
		{"MaxCapabilities are valid.", cluster(func(c *Cluster) { c.Spec.Capabilities = capabilities(MaxCapabilities) }), nil},
		{"One more is not.", cluster(func(c *Cluster) { c.Spec.Capabilities = capabilities(MaxCapabilities + 1) }), []string{"spec.capabilities: FieldValueTooMany"}},
		{"A capability has a name and a hash.", cluster(func(c *Cluster) { c.Spec.Capabilities = []Capability{{}} }),
			[]string{"spec.capabilities[0].name: FieldValueRequired", "spec.capabilities[0].sha256: FieldValueRequired"}},
		{"Each of them is another one.", cluster(func(c *Cluster) { c.Spec.Capabilities = append(capabilities(1), capabilities(1)...) }),
			[]string{"spec.capabilities[1].name: FieldValueDuplicate", "spec.capabilities[1].sha256: FieldValueDuplicate"}},
		{"The name is a label.", capable(func(c *Capability) { c.Name = "Old one" }), []string{"spec.capabilities[0].name: FieldValueInvalid"}},
		{"It may have 63 bytes.", capable(func(c *Capability) { c.Name = strings.Repeat("a", 63) }), nil},
		{"It may have no more.", capable(func(c *Capability) { c.Name = strings.Repeat("a", 64) }), []string{"spec.capabilities[0].name: FieldValueTooLong"}},
		{"The hash is a SHA-256.", capable(func(c *Capability) { c.SHA256 = c.SHA256[1:] }), []string{"spec.capabilities[0].sha256: FieldValueInvalid"}},
		{"It is no more than that.", capable(func(c *Capability) { c.SHA256 += "00" }), []string{"spec.capabilities[0].sha256: FieldValueInvalid"}},
		{"It has lower case.", capable(func(c *Capability) { c.SHA256 = strings.ToUpper(c.SHA256) }), []string{"spec.capabilities[0].sha256: FieldValueInvalid"}},
		{"It has hexadecimal digits.", capable(func(c *Capability) { c.SHA256 = strings.Repeat("g", 64) }), []string{"spec.capabilities[0].sha256: FieldValueInvalid"}},
		{"It may end.", capable(func(c *Capability) { c.NotAfter = "2027-01-31T00:00:00+01:00" }), nil},
		{"A time has at most 64 bytes.", capable(func(c *Capability) { c.NotAfter = "2027-01-31T00:00:00." + strings.Repeat("0", 43) + "Z" }), nil},
		{"It has no more.", capable(func(c *Capability) { c.NotAfter = "2027-01-31T00:00:00." + strings.Repeat("0", 44) + "Z" }), []string{"spec.capabilities[0].notAfter: FieldValueInvalid"}},
		{"Its end is a time.", capable(func(c *Capability) { c.NotAfter = "2027-01-31" }), []string{"spec.capabilities[0].notAfter: FieldValueInvalid"}},
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
		{"A cluster with bridges needs nothing else.", cluster(func(c *Cluster) { c.Spec.Namespaces, c.Spec.Bridge = nil, &Bridge{} }), nil},
		{"It is asked in one way, for all.", cluster(func(c *Cluster) { c.Spec.Bridge, c.Spec.Kubeconfig = &Bridge{}, "/etc/prod-1" }),
			[]string{"spec.kubeconfig: FieldValueForbidden", "spec.namespaces: FieldValueForbidden"}},
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
		{"A bypass names namespaces, users and groups.", bypassing(Bypass{
			Namespaces: []string{"kube-system"}, Users: []string{"system:kube-scheduler"}, ServiceAccounts: []string{"kube-system/job-controller"},
			Groups: []string{"system:masters"}, BreakGlass: &BreakGlass{Until: "2026-01-02T15:04:05+01:00", Reason: "INC-42"},
		}), nil},
		{"A bypass without names exempts nothing.", bypassing(Bypass{}), nil},
		{"The groups of everybody open the cluster.", bypassing(Bypass{Groups: []string{"system:authenticated", "system:unauthenticated"}}),
			[]string{"spec.bypass.groups[0]: FieldValueInvalid", "spec.bypass.groups[1]: FieldValueInvalid"}},
		{"Names are those of Kubernetes.", bypassing(Bypass{
			Namespaces: []string{"Kube", "*"}, Users: []string{"", "a ", strings.Repeat("u", MaxBypassNameLength+1)},
			ServiceAccounts: []string{"a", "a/B", "/b"}, Groups: []string{" "},
		}), []string{
			"spec.bypass.namespaces[0]: FieldValueInvalid", "spec.bypass.namespaces[1]: FieldValueInvalid",
			"spec.bypass.users[0]: FieldValueInvalid", "spec.bypass.users[1]: FieldValueInvalid", "spec.bypass.users[2]: FieldValueInvalid",
			"spec.bypass.serviceAccounts[0]: FieldValueInvalid", "spec.bypass.serviceAccounts[1]: FieldValueInvalid",
			"spec.bypass.serviceAccounts[2]: FieldValueInvalid", "spec.bypass.groups[0]: FieldValueInvalid",
		}},
		{"A name stands there once.", bypassing(Bypass{Users: []string{"u", "u"}}), []string{"spec.bypass.users[1]: FieldValueDuplicate"}},
		{"Resources that always fail open are named as in rules.", bypassing(Bypass{FailOpen: []BypassResources{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
			{APIGroups: []string{"", "*"}, Resources: []string{"pods/status", "pods/*", "*/status", "*", "*/*"}},
		}}), nil},
		{"Resources that always fail open have a group and a name.", bypassing(Bypass{FailOpen: []BypassResources{{}}}),
			[]string{"spec.bypass.failOpen[0].apiGroups: FieldValueRequired", "spec.bypass.failOpen[0].resources: FieldValueRequired"}},
		{"Names of resources that always fail open are those of rules.", bypassing(Bypass{FailOpen: []BypassResources{
			{APIGroups: []string{"Apps", "apps/v1"}, Resources: []string{"", "Pods", "pods/", "/status", "pods/a/b", "pod*"}},
		}}), []string{
			"spec.bypass.failOpen[0].apiGroups[0]: FieldValueInvalid", "spec.bypass.failOpen[0].apiGroups[1]: FieldValueInvalid",
			"spec.bypass.failOpen[0].resources[0]: FieldValueInvalid", "spec.bypass.failOpen[0].resources[1]: FieldValueInvalid",
			"spec.bypass.failOpen[0].resources[2]: FieldValueInvalid", "spec.bypass.failOpen[0].resources[3]: FieldValueInvalid",
			"spec.bypass.failOpen[0].resources[4]: FieldValueInvalid", "spec.bypass.failOpen[0].resources[5]: FieldValueInvalid",
		}},
		{"A break-glass ends, for a reason.", bypassing(Bypass{BreakGlass: &BreakGlass{Until: "tomorrow", Reason: " "}}),
			[]string{"spec.bypass.breakGlass.until: FieldValueInvalid", "spec.bypass.breakGlass.reason: FieldValueRequired"}},
		{"A reason is short.", bypassing(Bypass{BreakGlass: &BreakGlass{
			Until: "2026-01-02T15:04:05Z", Reason: strings.Repeat("r", MaxBreakGlassReason+1),
		}}), []string{"spec.bypass.breakGlass.reason: FieldValueTooLong"}},
		{"A capability may be rotated each hour.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "1h" }), nil},
		{"It may be each quarter.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "2160h" }), nil},
		{"A cluster would soon stand that nothing can write.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "3599s" }), []string{"spec.rotateCapability: FieldValueInvalid"}},
		{"It would be good for too long.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "2160h1s" }), []string{"spec.rotateCapability: FieldValueInvalid"}},
		{"Its end is a second.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "1h500ms" }), []string{"spec.rotateCapability: FieldValueInvalid"}},
		{"A duration has a unit.", cluster(func(c *Cluster) { c.Spec.RotateCapability = "30d" }), []string{"spec.rotateCapability: FieldValueInvalid"}},
		{"A bridge knows its capabilities.", cluster(func(c *Cluster) { c.Spec.Namespaces, c.Spec.Bridge, c.Spec.RotateCapability = nil, &Bridge{}, "1h" }), []string{"spec.rotateCapability: FieldValueForbidden"}},
		{"Entries are kept by the API server of a kubeconfig.", registered(func(*Registration) {}), nil},
		{"All about them may be said.", registered(func(r *Registration) {
			*r = Registration{
				URL: "https://mesh.example.com:8443/a", CABundle: authority(t), Name: "mesh",
				OwnNamespace: "portcullis-system", MutateTimeout: "1s", ReinvokeTimeout: "29s", ValidateTimeout: "1000ms",
			}
		}), nil},
		{"Without one the command writes them.", cluster(func(c *Cluster) {
			c.Spec.Registration = &Registration{URL: "https://mesh.example.com"}
		}), []string{"spec.registration: FieldValueForbidden"}},
		{"They have an address.", registered(func(r *Registration) { r.URL = "" }), []string{"spec.registration.url: FieldValueRequired"}},
		{"It is encrypted.", registered(func(r *Registration) { r.URL = "http://mesh.example.com" }), []string{"spec.registration.url: FieldValueInvalid"}},
		{"It has a host.", registered(func(r *Registration) { r.URL = "https:///a" }), []string{"spec.registration.url: FieldValueInvalid"}},
		{"It has no user.", registered(func(r *Registration) { r.URL = "https://u:p@mesh.example.com" }), []string{"spec.registration.url: FieldValueInvalid"}},
		{"It has no query.", registered(func(r *Registration) { r.URL = "https://mesh.example.com/?a=b" }), []string{"spec.registration.url: FieldValueInvalid"}},
		{"It has at most 2048 bytes.", registered(func(r *Registration) { r.URL = "https://mesh.example.com/" + strings.Repeat("a", 2024) }), []string{"spec.registration.url: FieldValueTooLong"}},
		{"Their authorities may be in a file.", registered(func(r *Registration) { r.CAFile = "/etc/ca.crt" }), nil},
		{"The file has an absolute path.", registered(func(r *Registration) { r.CAFile = "ca.crt" }), []string{"spec.registration.caFile: FieldValueInvalid"}},
		{"They are in one place.", registered(func(r *Registration) {
			r.CAFile, r.CABundle = "/etc/ca.crt", authority(t)
		}), []string{"spec.registration.caFile: FieldValueForbidden"}},
		{"A bundle is certificates.", registered(func(r *Registration) { r.CABundle = []byte("ca") }), []string{"spec.registration.caBundle: FieldValueInvalid"}},
		{"It has no key.", registered(func(r *Registration) {
			r.CABundle = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}), []string{"spec.registration.caBundle: FieldValueInvalid"}},
		{"Their names are those of Kubernetes.", registered(func(r *Registration) { r.Name, r.OwnNamespace = "A", "a.b" }),
			[]string{"spec.registration.name: FieldValueInvalid", "spec.registration.ownNamespace: FieldValueInvalid"}},
		{"An API server counts in seconds.", registered(func(r *Registration) { r.MutateTimeout, r.ReinvokeTimeout, r.ValidateTimeout = "1500ms", "0s", "30s" }),
			[]string{
				"spec.registration.mutateTimeout: FieldValueInvalid", "spec.registration.reinvokeTimeout: FieldValueInvalid",
				"spec.registration.validateTimeout: FieldValueInvalid",
			}},
		{"Webhook configurations of others are selected, and their hosts listed.", following(func(*Follow) {}), nil},
		{"No host need be listed.", following(func(f *Follow) { f.WebhookHosts = nil }), nil},
		{"They are read by a kubeconfig.", cluster(func(c *Cluster) {
			c.Spec.Follow = &Follow{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}), []string{"spec.follow: FieldValueForbidden"}},
		{"To select all of them would be a slip.", following(func(f *Follow) { f.Selector = metav1.LabelSelector{} }), []string{"spec.follow.selector: FieldValueRequired"}},
		{"A host has no scheme, port or path, and is in lower case.", following(func(f *Follow) {
			f.WebhookHosts = []string{"https://a.example", "a:443", "a/b", "A.example", "*", "a.*.example", "[fd00::1]"}
		}), []string{
			"spec.follow.webhookHosts[0]: FieldValueInvalid", "spec.follow.webhookHosts[1]: FieldValueInvalid", "spec.follow.webhookHosts[2]: FieldValueInvalid",
			"spec.follow.webhookHosts[3]: FieldValueInvalid", "spec.follow.webhookHosts[4]: FieldValueInvalid", "spec.follow.webhookHosts[5]: FieldValueInvalid",
			"spec.follow.webhookHosts[6]: FieldValueInvalid",
		}},
		{"A host stands there once.", following(func(f *Follow) { f.WebhookHosts = []string{"a", "a"} }), []string{"spec.follow.webhookHosts[1]: FieldValueDuplicate"}},
		{"An identity is not empty.", cluster(func(c *Cluster) { c.Spec.Identities = []string{""} }), []string{"spec.identities[0]: FieldValueRequired"}},
	} {
		written.add(t, tc.name, tc.doc)
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

func TestNamesOfABypassAreBounded(t *testing.T) {
	for n, want := range map[int]int{MaxBypassNames: 0, MaxBypassNames + 1: 3} {
		accounts := many(n)
		for i, name := range accounts {
			accounts[i] = "kube-system/" + name
		}
		if errs := bypassing(Bypass{Namespaces: many(n), Users: many(n), ServiceAccounts: accounts}).Validate(); len(errs) != want {
			t.Errorf("%d names: %v", n, errs)
		}
	}
}

func TestResourcesThatAlwaysFailOpenAreBounded(t *testing.T) {
	resources := func(n, groups, names, length int) *Cluster {
		of := BypassResources{APIGroups: many(groups), Resources: many(names)}
		of.Resources[0] = strings.Repeat("r", length)
		return bypassing(Bypass{FailOpen: slices.Repeat([]BypassResources{of}, n)})
	}
	if errs := resources(MaxFailOpen, MaxFailOpenNames, MaxFailOpenNames, MaxFailOpenResource).Validate(); len(errs) > 0 {
		t.Errorf("as many as there may be: %v", errs)
	}
	for what, c := range map[string]*Cluster{
		"items": resources(MaxFailOpen+1, 1, 1, 1), "groups": resources(1, MaxFailOpenNames+1, 1, 1),
		"names": resources(1, 1, MaxFailOpenNames+1, 1), "length of a name": resources(1, 1, 1, MaxFailOpenResource+1),
	} {
		if errs := c.Validate(); len(errs) != 1 {
			t.Errorf("one too many of %s: %v", what, errs)
		}
	}
}

// An operator who writes the secret in the place of its hash must not find it in a log.
func TestNoErrorRepeatsACapability(t *testing.T) {
	const secret = "pcap_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	c := cluster(func(c *Cluster) {
		c.Spec.Capabilities = []Capability{{Name: "a", SHA256: secret}, {Name: "b", SHA256: secret}}
	})
	err := c.Validate().ToAggregate()
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "make another one") {
		t.Errorf("error = %v", err)
	}
}

func TestACapabilityAsBytesAndTime(t *testing.T) {
	c := Capability{SHA256: strings.Repeat("0a", 32), NotAfter: "2027-01-31T00:00:00Z"}
	if sum := c.Sum(); sum[0] != 10 || sum[31] != 10 || c.Expires().Unix() != 1801353600 || !(&Capability{}).Expires().IsZero() {
		t.Errorf("sum %x, expires %v", sum, c.Expires())
	}
}

// authority is a CA certificate in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	certificate, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
