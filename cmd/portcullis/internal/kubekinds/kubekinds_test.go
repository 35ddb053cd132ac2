package kubekinds_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/kubekinds"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
)

func TestClustersLearnOfBuiltInKinds(t *testing.T) {
	k := kubekinds.Kinds{Codec: builtin.New(builtin.Options{})}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	if got := len(k.Known().For(deployments, "")); got != 4 {
		t.Errorf("ever served in %d ways", got)
	}
	if got := len(k.Served([]schema.GroupVersion{{Group: "apps", Version: "v1"}}).For(deployments, "")); got != 1 {
		t.Errorf("served in %d ways", got)
	}
	const object = `{"apiVersion":"stable.example.com/v1","kind":"Widget"}`
	_, err := k.Convert([]byte(object), schema.GroupVersionKind{Group: "stable.example.com", Version: "v2", Kind: "Widget"})
	if !errors.Is(err, cluster.ErrUnknownKind) || !errors.Is(err, builtin.ErrUnknownKind) {
		t.Errorf("a custom resource: %v", err)
	}
	const hpa = `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"a","name":"a"}}}`
	got, err := k.Convert([]byte(hpa), schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"})
	if err != nil || !strings.Contains(string(got), `"autoscaling/v2"`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAMistakenKindIsNamed(t *testing.T) {
	k := kubekinds.Kinds{Codec: builtin.New(builtin.Options{})}
	for of, want := range map[[3]string]string{
		{"apps", "v1", "Deploymnt"}:              `Kubernetes 1.36 has no kind Deploymnt in apps/v1; did you mean "Deployment"?`,
		{"", "v1", "pod"}:                        `Kubernetes 1.36 has no kind pod in v1; did you mean "Pod"?`,
		{"", "v1", "Deployment"}:                 `Kubernetes 1.36 has no kind Deployment in v1; did you mean "apps/v1"?`,
		{"apps", "v1", "Ingress"}:                `Kubernetes 1.36 has no kind Ingress in apps/v1; did you mean "networking.k8s.io/v1"?`,
		{"apps", "v2", "Gadget"}:                 "Kubernetes 1.36 has no kind Gadget in apps/v2",
		{"apps", "v1", "Deployment"}:             "",
		{"extensions", "v1beta1", "Ingress"}:     "",
		{"apps.example.com", "v1", "Deploymnt"}:  "",
		{"stable.example.com", "v1", "CronJobs"}: "",
	} {
		if got := k.Mistaken(schema.GroupVersionKind{Group: of[0], Version: of[1], Kind: of[2]}); got != want {
			t.Errorf("%q: %q, want %q", of, got, want)
		}
	}
}
