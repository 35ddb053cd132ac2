package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// javaController starts the controller of the Java SDK for an initializer; the test is skipped where that is not built.
func (i *initialized) javaController(t *testing.T, name string) *process.Process {
	t.Helper()
	built := filepath.Join(findTree(t).Root, "sdk", "java", "testhost", "target")
	if _, err := os.Stat(filepath.Join(built, "lib")); err != nil {
		citest.Lacks(t, "the Java SDK is not built: sdk/java/check builds it")
	}
	cert, key := i.Certify(t, hostName)
	controller, err := process.Start(process.Command{
		Path: "java", Args: []string{
			"-cp", built + "/*:" + built + "/lib/*", "dev.portcullis.testhost.TestController",
			i.dispatcher.Hosts, cert, key, i.AuthorityFile(), name,
		},
		LogFile: filepath.Join(t.TempDir(), "controller.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(controller.Tail(40))
		}
		if err := controller.Kill(); err != nil {
			t.Error(err)
		}
	})
	return controller
}

// TestAControllerInJavaInitializesPods also after its dispatcher has been away, refuses them, and ends when it is asked to.
func TestAControllerInJavaInitializesPods(t *testing.T) {
	citest.Soak(t, "runs a controller in Java: 10 s")
	const name = "creator.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", timeout: 9s", name)...)
	controller := i.javaController(t, name)
	create := func(pod *corev1.Pod) {
		t.Helper()
		// Until a JVM has begun, and while the dispatcher comes back, nobody initializes in time.
		eventually(t, "the Pod is initialized", func() error {
			created, err := cluster.CreatePod(t.Context(), pod)
			if err == nil && created.Annotations["creator"] == "" {
				t.Errorf("annotations %v: want the creator", created.Annotations)
			}
			return err
		})
	}

	create(kube.Pod(i.namespace, "first"))
	refused := kube.Pod(i.namespace, "refused")
	refused.Annotations = map[string]string{"refuse": "not this one"}
	_, err := cluster.CreatePod(t.Context(), refused)
	wantError(t, err, http.StatusForbidden, `initializer "`+name+`"`, "not this one")

	i.dispatcher.Stop(t)
	i.dispatcher.Start(t)
	create(kube.Pod(i.namespace, "second"))

	i.wantNothingStaged(t)
	if err := controller.Stop(0); err != nil { // It closes its client, and has nothing to wait for.
		t.Error(err)
	}
}
