package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// initializers are the names in mesh.yaml, in the order in which the mesh calls them. Each has a route over streams.
func initializers(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, problems := configtest.Decode("mesh.yaml", text)
	snapshot, more := config.Compile("1", objects)
	if err := append(problems, more...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, h := range snapshot.Hooks() {
		if !h.Initializes() || !h.Route.Stream {
			t.Errorf("%s is no initializer that hosts serve over streams", h.ID.Name)
		}
		names = append(names, h.ID.Name)
	}
	return names
}

func TestAPodIsInitialized(t *testing.T) {
	host, err := newHost(hostsdk.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	object := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"later": 1, "initContainers": [
		{"name": "i", "image": "busybox:1"}], "containers": [{"name": "c", "image": "nginx@sha256:0a"}]}}`)
	for _, name := range initializers(t) {
		object = d.Review(t.Context(), name, hosttest.Create(string(object))).Object
	}
	var got, want any
	if err := json.Unmarshal(object, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"later": 1, "initContainers": [
		{"name": "i", "image": "busybox:1", "imagePullPolicy": "Always"}], "containers": [{"name": "c", "image": "nginx@sha256:0a"},
		{"name": "proxy", "image": "registry.example.com/proxy:1", "imagePullPolicy": "Always", "resources": {}}]}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the Pod (-want +got):\n%s", diff)
	}
}

func TestTheSidecarIsLeftOutOrRefused(t *testing.T) {
	pod, err := addProxy(t.Context(), &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}, nil)
	if err != nil || len(pod.Spec.Containers) != 0 {
		t.Errorf("in the network of the node: %v, %v", pod, err)
	}
	_, err = addProxy(t.Context(), &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy", Image: "other"}}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "rename the container") {
		t.Errorf("with a container of its name: %v", err)
	}
}

func TestItSaysWhatIsMissing(t *testing.T) {
	if err := run(t.Context(), nil, io.Discard); err == nil {
		t.Error("it runs without dispatchers and certificates")
	}
}
