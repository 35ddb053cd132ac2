package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
)

const initializersAndRoles = `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: sidecars}
initializers:
- name: sidecar.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
- name: image.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: hook.example.com
  clientConfig: {url: "https://hooks.example.com/"}
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: sidecars}
spec: {configuration: sidecars, stage: initialize, hook: sidecar.example.com, hosts: [controller], clusters: [prod-2, prod-1]}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: images}
spec: {configuration: sidecars, stage: initialize, hook: image.example.com, hosts: [controller, other]}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: hooks}
spec: {configuration: hooks, stream: {}, hosts: [host, controller]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: viewers}
spec: {role: viewer, identities: [jane, other]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: operators}
spec: {role: operator, identities: [joe]}
`

// TestInitializerGrants: routes of the configuration in force grant initializers, and Roles the rest.
func TestInitializerGrants(t *testing.T) {
	a, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	grants := &initializerGrants{configuration: a.store.Configuration, operators: identity.Grant{Names: []string{"root"}}}
	next := grants.Next()
	file := clitest.Write(t, "initializers.yaml", initializersAndRoles)
	if r := clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--wait", "--ready-file", readyFileOf(t, info), "--acknowledge", "danger-kube-system"); r.Code != 0 {
		t.Fatal(r)
	}
	<-next
	sidecar := service.Initializer{Pending: "sidecars/sidecar.example.com", Clusters: []string{"prod-1", "prod-2"}}
	image := service.Initializer{Pending: "sidecars/image.example.com"}
	for who, want := range map[string]service.Access{
		"controller": {Initializers: []service.Initializer{sidecar, image}},
		"other":      {Initializers: []service.Initializer{image}, Reader: true},
		"jane":       {Reader: true},
		"joe":        {Reader: true, Operator: true},
		"root":       {Reader: true, Operator: true},
		"host":       {}, // of a hook that is no initializer
		"stranger":   {},
	} {
		if diff := cmp.Diff(want, grants.Access(identity.Named(who))); diff != "" {
			t.Errorf("%s: %s", who, diff)
		}
	}
	for _, tt := range []struct {
		cluster, name string
		want          []string
	}{
		{"prod-1", "sidecar.example.com", []string{sidecar.Pending}}, {"prod-3", "sidecar.example.com", nil},
		{"prod-3", "image.example.com", []string{image.Pending}}, {"prod-1", "hook.example.com", nil},
	} {
		if got := grants.Configured(tt.cluster, tt.name); !slices.Equal(got, tt.want) {
			t.Errorf("%s has %s: %q", tt.cluster, tt.name, got)
		}
	}
}

// TestGrantsAreReadOnceForEachConfiguration: a call must not look through all hooks, of which there may be thousands.
func TestGrantsAreReadOnceForEachConfiguration(t *testing.T) {
	a, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	grants := &initializerGrants{configuration: a.store.Configuration}
	apply := func(documents string) {
		t.Helper()
		file := clitest.Write(t, "initializers.yaml", documents)
		if r := clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--wait", "--ready-file", readyFileOf(t, info), "--acknowledge", "danger-kube-system"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	apply(initializersAndRoles)
	for range 3 {
		next, before := grants.Next(), grants.table()
		grants.Access(identity.Named("controller"))
		grants.Configured("prod-1", "sidecar.example.com")
		if after := grants.table(); grants.Next() == next && after != before {
			t.Error("the grants of one configuration are read again")
		}
	}
	apply(strings.ReplaceAll(initializersAndRoles, "hosts: [controller, other]", "hosts: [controller]"))
	if a := grants.Access(identity.Named("other")); len(a.Initializers) > 0 || !a.Reader {
		t.Errorf("the grants of a configuration that was replaced: %+v", a)
	}
}
