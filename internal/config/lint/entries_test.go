package lint_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// registered returns the entries of a cluster that has one hook of each kind, both of which fail open.
func registered(t *testing.T, cluster string) []string {
	t.Helper()
	objects, problems := configtest.Decode("", []byte(strings.Join([]string{
		configuration("Validating", "p", hook("p", "failurePolicy: Ignore")), configuration("Mutating", "q", hook("q", "failurePolicy: Ignore")),
	}, "\n---\n")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("1", objects)
	r, err := registration.Plan(snapshot, cluster, registration.Options{URL: "https://mesh.example.com:8443"})
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, object := range []any{r.Validating, r.Mutating} {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	return documents
}

func TestEntriesOfTheMeshItself(t *testing.T) {
	const made = `danger-own-entry: *"portcullis": webhooks[0].clientConfig: "portcullis cluster register" made it for the API servers of ` +
		`cluster prod-1: the mesh would call itself*app.kubernetes.io/managed-by=portcullis`
	entries := registered(t, "prod-1")
	expect(t, found(t, entries...), made, made)
	expect(t, found(t, append(entries, clusterNamed("prod-1"))...), made, made)
	streams := route("r", "configuration: portcullis, stream: {}, hosts: [a]")
	expect(t, found(t, append(entries, streams)...)) // nobody is called at the address
}

func TestAddressesOfTheMeshItself(t *testing.T) {
	const at = `danger-own-entry: ValidatingWebhookConfiguration "p": webhooks[0].clientConfig: it is where API servers of cluster prod-1 reach a mesh: *would call itself`
	declared := clusterNamed("prod-1")
	for name, tt := range map[string]struct {
		hook string
		want []string
	}{
		"by URL":                    {"clientConfig: {url: 'https://mesh.example.com/v1/clusters/prod-1/validate/fail-closed'}", []string{at}},
		"with a capability":         {"clientConfig: {url: 'https://mesh.example.com/v1/clusters/prod-1/capability/pcap_A/validate/fail-closed/10.A'}", []string{at}},
		"by service":                {"clientConfig: {service: {namespace: a, name: b, path: /v1/clusters/prod-1/validate}}", []string{at}},
		"of an undeclared cluster":  {"clientConfig: {url: 'https://mesh.example.com/v1/clusters/prod-2/validate'}", nil},
		"of a webhook":              {"clientConfig: {url: 'https://mesh.example.com/validate'}", nil},
		"of a hook without address": {"clientConfig: {}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, found(t, declared, configuration("Validating", "p", hook("p", tt.hook))), tt.want...)
		})
	}
	stripped := registered(t, "prod-1")
	for i := range stripped {
		stripped[i] = strings.Replace(stripped[i], "portcullis.dev/cluster", "example.com/cluster", 1)
	}
	want := strings.Replace(at, `ValidatingWebhookConfiguration "p"`, `*WebhookConfiguration "portcullis"`, 1)
	expect(t, found(t, append(slices.Clone(stripped), declared)...), want, want)
}
