package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

const fragile = "fragile.example.com"

// fragileRoad has one hook with that policy, and reviews of Pods that arrive.
func fragileRoad(t *testing.T, policy admissionregistrationv1.FailurePolicyType) *road {
	t.Helper()
	hook := onPods(fragile)
	hook.FailurePolicy = policy
	return newRoad(t, kube.Validating("fragile", hook))
}

// killDuringCall creates a Pod, kills the only host while it holds the review,
// and returns the answer to the client.
func (r *road) killDuringCall(t *testing.T, client *kubernetes.Clientset) error {
	t.Helper()
	host := r.replica(t, nil, "-validate="+fragile, "-hang")
	r.validate(t)
	answer := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{})
		answer <- err
	}()
	eventually(t, "the host holds the review", func() error { return host.wasCalled(t, 1) })
	if err := host.Kill(); err != nil {
		t.Fatal(err)
	}
	return <-answer
}

func TestAKilledHostFailsTheRequestsOfAHookThatFailsClosed(t *testing.T) {
	citest.Gate(t, "covers hosts that are killed: 6 s")
	r := fragileRoad(t, admissionregistrationv1.Fail)

	wantError(t, r.killDuringCall(t, cluster.Client()), http.StatusInternalServerError, entryName, fragile, "failed calling webhook", "unavailable")
	wantError(t, r.createDry(t.Context()), http.StatusInternalServerError, entryName, fragile, "failed calling webhook", "unavailable")
}

func TestAKilledHostLetsTheRequestsOfAHookThatFailsOpenPass(t *testing.T) {
	citest.Gate(t, "covers hosts that are killed: 7 s")
	r := fragileRoad(t, admissionregistrationv1.Ignore)
	var heard warnings
	config := cluster.Config()
	config.WarningHandler = &heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	if err := r.killDuringCall(t, client); err != nil {
		t.Fatalf("create a pod: %v, want it admitted", err)
	}

	if _, err := r.getPod(t, "pod"); err != nil {
		t.Errorf("get the admitted pod: %v", err)
	}
	if all := heard.String(); !strings.Contains(all, fragile) || !strings.Contains(all, "skipped") {
		t.Errorf("warnings = %q, want one that names the skipped hook", all)
	}
	eventually(t, "the audit log says which hook failed open", func() error {
		return auditHas(func(e *auditv1.Event) bool {
			ref := e.ObjectRef
			return ref != nil && ref.Namespace == r.namespace && ref.Resource == "pods" &&
				strings.Contains(e.Annotations[entryName+"/failed-open.validating.round_0_index_0"], `"webhook":"`+fragile+`","kind":"unavailable"`)
		})
	})
}

// warnings collects the warnings of kube-apiserver to a client.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.WriteString(text + "\n")
}

// String is everything so far.
func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
