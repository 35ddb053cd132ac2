package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// TestAHostWithoutAnSDKServesARealDispatcher runs the example in Python.
func TestAHostWithoutAnSDKServesARealDispatcher(t *testing.T) {
	citest.Soak(t, "gets Python libraries, and runs a host in Python: 29 s")
	start := pythonHost(t)
	r := newRoad(t,
		kube.Validating("images", onPods("pinned-images.example.com")), kube.Mutating("teams", onPods("team-label.example.com")))
	first := start(r)
	eventually(t, "its hooks are in rotation", func() error { return r.dispatcher.Ready(t.Context()) })
	r.validate(t)
	r.mutate(t)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "good"))
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	if got, want := pod.Labels["team"], "team-of-"+r.namespace; got != want {
		t.Errorf("label team = %q, want %q", got, want)
	}
	latest := kube.Pod(r.namespace, "latest")
	latest.Spec.Containers[0].Image = "app:latest"
	_, err = cluster.CreatePod(t.Context(), latest)
	wantError(t, err, http.StatusForbidden, `hook "pinned-images.example.com" denied the request: image app:latest is not pinned`)

	// It understands neither batches nor chunks; the host that takes its place
	// does, and is replaced in its turn by the former host.
	large := r.largeReviewer(t)
	large()
	flow := newTraffic(t, r.createDry)
	fresh := r.hostProcess(t, "-validate=pinned-images.example.com", "-mutate=team-label.example.com")
	flow.await(t)
	drain(t, first)
	flow.await(t)
	large()
	start(r)
	eventually(t, "the old one is back", func() error { return r.dispatcher.HasMetric(t.Context(), "portcullis_host_sessions 2") })
	flow.await(t)
	fresh.Drain(t)
	flow.await(t)
	large()

	flow.wantNoFailure(t)
}

// drain ends a host that is no program of ours.
func drain(t *testing.T, host *process.Process) {
	t.Helper()
	if err := host.Stop(0); err != nil {
		t.Error(err)
	}
	if err := host.Err(); err != nil {
		t.Errorf("the drained host ended with %v\n%s", err, host.Tail(20))
	}
}

// largeReviewer is a function that posts reviews of a Pod of 5 MB to both
// stages, and fails the test unless it is admitted. No API server stores one
// so large, but it sends an object and its predecessor of 3 MiB each.
func (r *road) largeReviewer(t *testing.T) func() {
	t.Helper()
	pod := kube.Pod(r.namespace, "large")
	pod.Annotations = map[string]string{"large": strings.Repeat("x", 5_000_000)}
	request := podRequest(r.namespace, "app")
	request.Object = runtime.RawExtension{Object: pod}
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), false)
	return func() {
		t.Helper()
		for _, stage := range []string{"mutate", "validate"} {
			response, err := caller.Review(t.Context(), r.dispatcher.URL(clusterName, stage), request)
			if err != nil {
				t.Fatal(err)
			}
			if !response.Allowed {
				t.Errorf("%s: denied: %s", stage, response.Result.Message)
			}
		}
	}
}

// pythonHost is a function that starts the example host; the test is skipped
// where there is no Python.
func pythonHost(t *testing.T) func(*road) *process.Process {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(tree.Root, "examples", "python")
	python := interpreter(t, tree, example)
	stubs := t.TempDir()
	runIn(t, tree.Root, python, "-m", "grpc_tools.protoc", "-I", "proto", "--python_out", stubs, "--grpc_python_out", stubs,
		"portcullis/admission/v1/admission.proto", "portcullis/host/v1/host.proto")
	return func(r *road) *process.Process {
		cert, key := r.Certify(t, hostName)
		host, err := process.Start(process.Command{
			Path:    python,
			Args:    []string{"-B", filepath.Join(example, "host.py"), r.dispatcher.Hosts, "--tls", r.AuthorityFile(), cert, key},
			Env:     []string{"PYTHONPATH=" + stubs},
			LogFile: filepath.Join(t.TempDir(), "python.log"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(host.Tail(40))
			}
			if err := host.Kill(); err != nil {
				t.Error(err)
			}
		})
		return host
	}
}

// interpreter is the Python of the virtual environment that the example's own
// test makes. When there is none, that test runs now, and it copes with a
// machine without Python.
func interpreter(t *testing.T, tree build.Tree, example string) string {
	t.Helper()
	sum := sha256.Sum256(readFile(t, filepath.Join(example, "requirements.txt")))
	python := filepath.Join(tree.Root, ".tmp", "python-"+hex.EncodeToString(sum[:6]), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		runIn(t, tree.Root, "go", "test", "./examples/python")
	}
	if _, err := os.Stat(python); err != nil {
		citest.Lacks(t, "no Python with gRPC: `go test -v ./examples/python` says why")
	}
	return python
}

func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
