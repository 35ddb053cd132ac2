package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// onPodCreate is a hook for the creation of Pods in namespace.
func onPodCreate(server *webhook.Server, name, namespace string) kube.Hook {
	return kube.Hook{
		Name:              name,
		URL:               server.URL() + "/review",
		CABundle:          cluster.Authority().PEM(),
		Operations:        []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Resources:         []string{"pods"},
		NamespaceSelector: kube.InNamespace(namespace),
	}
}

func TestHarnessCreatesAPod(t *testing.T) {
	namespace := cluster.Namespace(t, nil)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "plain"))
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	if pod.Spec.ServiceAccountName != "default" {
		t.Errorf("service account = %q, want the one that the admission plugin sets", pod.Spec.ServiceAccountName)
	}
}

func TestHarnessReportsTheVersionOfGoMod(t *testing.T) {
	version, err := cluster.Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major != "1" || version.Minor != "36" {
		t.Errorf("version = %s.%s (%s), want 1.36", version.Major, version.Minor, version.GitVersion)
	}
}

func TestHarnessWebhookSeesTheClientCertificate(t *testing.T) {
	namespace := cluster.Namespace(t, nil)
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	cluster.InstallValidating(t, kube.Validating("harness-allow", onPodCreate(server, "allow.e2e.portcullis.dev", namespace)))

	if _, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "allowed")); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	calls := server.Calls()
	if len(calls) != 1 {
		t.Fatalf("the webhook was called %d times, want once", len(calls))
	}
	call := calls[0]
	if call.Client != kube.WebhookClientName {
		t.Errorf("client certificate of %q, want %q", call.Client, kube.WebhookClientName)
	}
	if call.URL.Path != "/review" || call.URL.Query().Get("timeout") != "10s" {
		t.Errorf("URL = %s, want /review with the default timeout of 10s", call.URL)
	}
	if call.Request.Namespace != namespace || call.Request.Name != "allowed" {
		t.Errorf("reviewed %s/%s, want %s/allowed", call.Request.Namespace, call.Request.Name, namespace)
	}
}

func TestHarnessWebhookDenies(t *testing.T) {
	namespace := cluster.Namespace(t, nil)
	server := webhook.Serve(t, cluster.Authority(), webhook.Deny(http.StatusConflict, "not today"))
	cluster.InstallValidating(t, kube.Validating("harness-deny", onPodCreate(server, "deny.e2e.portcullis.dev", namespace)))

	_, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "denied"))

	const want = `admission webhook "deny.e2e.portcullis.dev" denied the request: not today`
	if statusCode(err) != http.StatusConflict {
		t.Errorf("error = %v, want code 409", err)
	}
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if _, err := cluster.Client().CoreV1().Pods(namespace).Get(t.Context(), "denied", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a denied pod: %v, want it not found", err)
	}
}

func TestHarnessWebhookMutates(t *testing.T) {
	namespace := cluster.Namespace(t, nil)
	server := webhook.Serve(t, cluster.Authority(), webhook.Patch(`[{"op":"add","path":"/metadata/labels","value":{"mutated":"yes"}}]`))
	cluster.InstallMutating(t, kube.Mutating("harness-mutate", onPodCreate(server, "mutate.e2e.portcullis.dev", namespace)))

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "mutated"))
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	if pod.Labels["mutated"] != "yes" {
		t.Errorf("labels = %v, want mutated=yes", pod.Labels)
	}
}

func TestHarnessWebhookHasNoEffectAfterItsTest(t *testing.T) {
	namespace := cluster.Namespace(t, nil)
	t.Run("installed", func(t *testing.T) {
		server := webhook.Serve(t, cluster.Authority(), webhook.Deny(http.StatusForbidden, "no"))
		cluster.InstallValidating(t, kube.Validating("harness-gone", onPodCreate(server, "gone.e2e.portcullis.dev", namespace)))
		if _, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "first")); err == nil {
			t.Error("the pod was created, want it denied")
		}
	})
	if _, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "second")); err != nil {
		t.Errorf("create a pod: %v, want it allowed again", err)
	}
}

func TestHarnessKubeconfigIsOfItsUser(t *testing.T) {
	config, err := cluster.ConfigFor("alice", "developers")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	loaded, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(loaded)
	if err != nil {
		t.Fatal(err)
	}

	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})

	if !apierrors.IsForbidden(err) {
		t.Errorf("alice lists pods: %v, want it forbidden, since RBAC grants her nothing", err)
	}
}

func TestHarnessAuditLogHasTheRequest(t *testing.T) {
	namespace := cluster.Namespace(t, nil)
	if _, err := cluster.CreatePod(t.Context(), kube.Pod(namespace, "audited")); err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	eventually(t, "an audit event of the pod's creation", func() error {
		return auditHas(func(e *auditv1.Event) bool {
			ref := e.ObjectRef
			return e.Verb == "create" && ref != nil && ref.Resource == "pods" && ref.Namespace == namespace
		})
	})
}
