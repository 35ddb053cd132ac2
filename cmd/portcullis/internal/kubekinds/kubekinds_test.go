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
