package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

const (
	askedCluster = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec:\n  identities: [a]\n  kubeconfig: /etc/east\n"
	followedCopy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: followed.east.policy, annotations: {portcullis.dev/followed: east/policy}}
webhooks: []
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: followed.east.policy.validate, annotations: {portcullis.dev/followed: east/policy}}
spec: {configuration: followed.east.policy, stage: validate, clusters: [east]}
`
)

// TestAClusterThatTheMeshWritesToIsNotRemoved: its entries would refuse every write, and the configurations that it has switched off
// would stay off.
func TestAClusterThatTheMeshWritesToIsNotRemoved(t *testing.T) {
	f := newFixture(t)
	remove := func(kind, name string, dry bool) error {
		_, err := f.Delete(f.as("root"), &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: kind, Name: name}, DryRun: dry})
		return err
	}
	refused := func(document string, parts ...string) {
		t.Helper()
		f.applied("root", document)
		for _, dry := range []bool{true, false} {
			err := remove("Cluster", "east", dry)
			if status.Code(err) != codes.FailedPrecondition {
				t.Fatalf("error %v", err)
			}
			for _, part := range append(parts, "portcullis cluster unregister east --remove-document") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in: %v", part, err)
				}
			}
		}
	}
	refused(askedCluster+"  registration: {url: \"https://mesh.example.com\"}\n", "spec.registration")
	refused(askedCluster+"  follow: {selector: {matchLabels: {a: b}}}\n", "spec.follow")
	f.applied("root", followedCopy)
	refused(askedCluster, "ValidatingWebhookConfiguration/followed.east.policy")

	for _, key := range [][2]string{
		{"ValidatingWebhookConfiguration", "followed.east.policy"}, {"HookRoute", "followed.east.policy.validate"}, {"Cluster", "east"},
	} {
		if err := remove(key[0], key[1], false); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestACopyWhoseClusterIsGoneIsFound: its source was no store, which could have refused that.
func TestACopyWhoseClusterIsGoneIsFound(t *testing.T) {
	f := newFixture(t)
	finding := func() string {
		t.Helper()
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "followed.east.policy"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range a.GetObject().GetFindings() {
			if x.GetCode() == "followed-without-cluster" {
				return x.GetSeverity() + ": " + x.GetMessage()
			}
		}
		return ""
	}
	f.applied("root", followedCopy)
	if got := finding(); !strings.HasPrefix(got, "warning: ") || !strings.Contains(got, `"policy" of cluster "east"`) {
		t.Errorf("without the Cluster: %q", got)
	}
	f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {identities: [a]}\n")
	if got := finding(); got == "" {
		t.Error("without a kubeconfig nothing is found")
	}
	f.applied("root", askedCluster)
	if got := finding(); got != "" {
		t.Errorf("with the Cluster: %s", got)
	}
}
