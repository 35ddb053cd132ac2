package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// exampleIdentity is whom the examples' values of the chart let serve the hooks.
const exampleIdentity = "spiffe://mesh/imagepolicy"

// exampleCase is a request, and the verdict of the examples' policy.
type exampleCase struct {
	Name      string                `json:"name"`
	Hook      string                `json:"hook"`
	Operation admissionv1.Operation `json:"operation"`
	Object    json.RawMessage       `json:"object"`
	OldObject json.RawMessage       `json:"oldObject"`
	Expect    exampleVerdict        `json:"expect"`
}

type exampleVerdict struct {
	Allowed bool          `json:"allowed"`
	Code    int32         `json:"code"`
	Message string        `json:"message"`
	Causes  []exampleFlaw `json:"causes"`
	Object  any           `json:"object"`
}

type exampleFlaw struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// TestExamplesOfAllLanguagesDecideAlike runs each host of examples with a
// dispatcher, as its container does and with the configuration that its chart
// brings, for the cases that its own tests have.
func TestExamplesOfAllLanguagesDecideAlike(t *testing.T) {
	citest.Soak(t, "runs the examples of all languages: a minute")
	tree := findTree(t)
	ours, err := tree.ImagePolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(tree.Root, "examples", "imagepolicy")
	var cases []exampleCase
	if err := yaml.Unmarshal(readFile(t, filepath.Join(example, "cases.yaml")), &cases); err != nil {
		t.Fatal(err)
	}
	var values struct {
		Configuration struct {
			Files map[string]string `json:"files"`
		} `json:"configuration"`
	}
	if err := yaml.Unmarshal(readFile(t, filepath.Join(example, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	document := strings.ReplaceAll(values.Configuration.Files["imagepolicy.yaml"], exampleIdentity, hostName)
	r := newRoadWith(t, mesh.Options{Documents: []string{document}})
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
	for _, s := range hostsOfAllLanguages(t, ours, "examplehosts") {
		t.Run(s.language, func(t *testing.T) {
			host := r.startExample(t, s)
			for _, c := range cases {
				if diff := cmp.Diff(c.want(t), r.decide(t, caller, c)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.Name, diff)
				}
			}
			leave(t, host)
			wantUsage(t, s)
		})
	}
}

// startExample starts a host, and returns when its port for probes accepts
// connections.
func (r *road) startExample(t *testing.T, s sdk) *process.Process {
	t.Helper()
	cert, key := r.Certify(t, hostName)
	probes := freeAddress(t)
	_, port, err := net.SplitHostPort(probes)
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(s.command[1:]),
		"--dispatchers", r.dispatcher.Hosts, "--cert", cert, "--key", key, "--ca", r.AuthorityFile(), "--ready-port", port)
	host, err := process.Start(process.Command{
		Path: s.command[0], Args: args, Dir: findTree(t).Root, LogFile: filepath.Join(t.TempDir(), "host.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(host.Tail(20))
		}
		if err := host.Kill(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a JVM on a machine that is busy
	defer cancel()
	err = host.Await(ctx, func(ctx context.Context) error {
		probe, err := (&net.Dialer{}).DialContext(ctx, "tcp", probes)
		if err != nil {
			return err
		}
		return probe.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// want is the expected verdict. Where the case names no object, the hook changes none.
func (c exampleCase) want(t *testing.T) exampleVerdict {
	t.Helper()
	want := c.Expect
	if want.Allowed && want.Object == nil && len(c.Object) > 0 {
		if err := json.Unmarshal(c.Object, &want.Object); err != nil {
			t.Fatal(err)
		}
	}
	return want
}

// decide is the answer of the mesh, in the words of the hook.
func (r *road) decide(t *testing.T, caller *mesh.Caller, c exampleCase) exampleVerdict {
	t.Helper()
	stage := "validate"
	if c.Hook == "team-label.example.com" {
		stage = "mutate"
	}
	operation := c.Operation
	if operation == "" {
		operation = admissionv1.Create
	}
	response, err := caller.Review(t.Context(), r.dispatcher.URL(clusterName, stage), &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Operation: operation, Name: "web", Namespace: "shop",
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: runtime.RawExtension{Raw: c.Object}, OldObject: runtime.RawExtension{Raw: c.OldObject},
	})
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	got := exampleVerdict{Allowed: response.Allowed}
	if !response.Allowed {
		got.Code = response.Result.Code
		got.Message, _ = strings.CutPrefix(response.Result.Message, fmt.Sprintf("hook %q denied the request: ", c.Hook))
		if details := response.Result.Details; details != nil {
			for _, cause := range details.Causes {
				got.Causes = append(got.Causes, exampleFlaw{cause.Field, cause.Message})
			}
		}
		return got
	}
	if len(c.Object) == 0 {
		return got
	}
	patched, err := conversion.ApplyPatch(c.Object, response.Patch)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if err := json.Unmarshal(patched.Raw, &got.Object); err != nil {
		t.Fatal(err)
	}
	return got
}

// leave ends a host as a rollout does.
func leave(t *testing.T, host *process.Process) {
	t.Helper()
	if err := host.Stop(0); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := host.Err(); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 143) { // the exit code of a JVM after SIGTERM
		t.Errorf("the host ended with %v\n%s", err, host.Tail(20))
	}
}

// wantUsage wants a host without flags to end, and to name the missing flag.
func wantUsage(t *testing.T, s sdk) {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.command[0], s.command[1:]...)
	command.Dir = findTree(t).Root
	if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), "--dispatchers") {
		t.Errorf("without flags: error %v\n%s", err, said)
	}
}
