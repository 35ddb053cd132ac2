package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

const (
	// others is how many objects an API server looks at for each compilation, which takes it a millisecond and more.
	others = 1000
	// missedFor is how long an API server calls by the entries of before the change, until it counts as having missed the change.
	missedFor = 2 * time.Second
	// missPatience is how long the test tries to have it miss one.
	missPatience = time.Minute
)

// TestAChangeThatAnAPIServerHasMissedComesWithTheNextWrite has the real
// kube-apiserver compile webhooks all the time, since other objects change,
// until it misses a change. package touch has the same with its code alone, and
// without luck.
func TestAChangeThatAnAPIServerHasMissedComesWithTheNextWrite(t *testing.T) {
	citest.Soak(t, "keeps the API server busy until it misses a change: 9 s of all cores")
	namespace := cluster.Namespace(t, nil)
	addresses := map[string]string{}
	for _, name := range []string{"one", "two"} {
		addresses[name] = webhook.Serve(t, cluster.Authority(), webhook.Deny(418, "by "+name)).URL()
	}
	hook := onPods("changes.example.com")
	hook.URL, hook.CABundle, hook.NamespaceSelector = addresses["one"], cluster.Authority().PEM(), kube.InNamespace(namespace)
	changes := kube.Validating("zz-"+namespace, hook)
	cluster.InstallValidating(t, changes)
	stir := installOthers(t, namespace)
	by := func() string {
		_, err := cluster.Client().CoreV1().Pods(namespace).Create(t.Context(), kube.Pod(namespace, "p"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		for name := range addresses {
			if err != nil && strings.Contains(err.Error(), "by "+name) {
				return name
			}
		}
		return fmt.Sprint(err)
	}

	now := "one"
	for begun, tries := time.Now(), 1; ; tries++ {
		if time.Since(begun) > missPatience {
			t.Skipf("this kube-apiserver has missed none of %d changes", tries)
		}
		next := map[string]string{"one": "two", "two": "one"}[now]
		stop := stir(by)
		patch(t, changes.Name, fmt.Sprintf(`{"webhooks": [{"name": "changes.example.com", "clientConfig": {"url": %q}}]}`, addresses[next]))
		stop()
		if now = next; !missed(by, next) {
			continue
		}
		t.Logf("change %d was missed", tries)
		patch(t, changes.Name, `{"metadata": {"annotations": {"written": "again"}}}`)
		eventually(t, "the later write has it call by the change", func() error {
			if got := by(); got != next {
				return fmt.Errorf("it calls %s", got)
			}
			return nil
		})
		return
	}
}

// installOthers makes objects whose webhooks are not called. The function that it returns changes them, and has the API server compile, until
// stop is called.
func installOthers(t *testing.T, namespace string) (stir func(ask func() string) (stop func())) {
	t.Helper()
	admission := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	name := func(i int) string { return fmt.Sprintf("aa-%s-%d", namespace, i) }
	t.Cleanup(func() {
		if err := admission.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "missed=" + namespace}); err != nil {
			t.Error(err)
		}
	})
	for i := range others {
		o := kube.Validating(name(i), kube.Hook{
			Name: "none.example.com", URL: "https://localhost", Group: "none.example.com", Resources: []string{"none"},
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		})
		o.Labels = map[string]string{"missed": namespace}
		if _, err := admission.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return func(ask func() string) (stop func()) {
		var stopped atomic.Bool
		var stirring sync.WaitGroup
		for i := range 2 {
			stirring.Go(func() {
				for n := 0; !stopped.Load(); n++ {
					change := fmt.Appendf(nil, `{"metadata": {"annotations": {"n": "%d"}}}`, n)
					_, _ = admission.Patch(t.Context(), name(i), types.MergePatchType, change, metav1.PatchOptions{})
				}
			})
			stirring.Go(func() {
				for !stopped.Load() {
					ask()
				}
			})
		}
		return func() { stopped.Store(true); stirring.Wait() }
	}
}

// missed reports whether the API server goes on to call another webhook than the next one.
func missed(by func() string, next string) bool {
	for begun := time.Now(); time.Since(begun) < missedFor; {
		if by() == next {
			return false
		}
	}
	return true
}

func patch(t *testing.T, name, change string) {
	t.Helper()
	if _, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Patch(t.Context(), name, types.StrategicMergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
