package e2e

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/collector"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

const (
	// meshName is who the mesh is to webhooks, and meshNameForService to the
	// one service that is to know it by another name.
	meshName, meshNameForService = "mesh", "mesh-to-labels"
	// serviceNamespace is where the services are that nobody has made: the
	// mesh is told their addresses.
	serviceNamespace = "policy"
	// hookTimeout is less than the entry leaves a hook, so that webhooks get
	// exactly this timeout.
	hookTimeout = 3 * time.Second
)

// serveService starts a webhook that is a service as well.
func serveService(t *testing.T, name string, script webhook.Script) *webhook.Server {
	t.Helper()
	return webhook.Serve(t, cluster.Authority(), script, name+"."+serviceNamespace+".svc")
}

// inTable is the mesh's table of services with the webhook in it.
func inTable(server *webhook.Server, name string) string {
	return fmt.Sprintf("%s/%s=%s", serviceNamespace, name, server.Address())
}

// newWebhookRoad starts a dispatcher whose hooks are ordinary webhooks, called
// as meshName. services is the table that tells their addresses.
func newWebhookRoad(t *testing.T, services []string, configurations ...any) *road {
	t.Helper()
	options := mesh.Options{Env: []string{
		"PORTCULLIS_WEBHOOK_KUBECONFIG=" + webhookKubeconfig(t), "PORTCULLIS_WEBHOOK_SERVICE=" + strings.Join(services, ","),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces.Endpoint(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_BSP_SCHEDULE_DELAY=100",
	}}
	for _, c := range configurations {
		options.Documents = append(options.Documents, mesh.Document(t, c))
	}
	return newRoadWith(t, options)
}

// webhookKubeconfig is a file as kube-apiserver has one: who the mesh is to
// each webhook.
func webhookKubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	for webhook, name := range map[string]string{"*": meshName, "labels." + serviceNamespace + ".svc": meshNameForService} {
		pair, err := cluster.Authority().Client(name)
		if err != nil {
			t.Fatal(err)
		}
		config.AuthInfos[webhook] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	}
	file := filepath.Join(t.TempDir(), "webhooks.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// atURL is a hook on Pods at a webhook's URL.
func atURL(server *webhook.Server, name, path string) kube.Hook {
	hook := onPods(name)
	hook.URL, hook.CABundle, hook.Timeout = server.URL()+path, cluster.Authority().PEM(), hookTimeout
	return hook
}

// serviceV1beta1 is a validating configuration in the words of v1beta1, of one
// hook on Pods that is a service.
func serviceV1beta1(name, hook, service string) *admissionregistrationv1beta1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1beta1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1beta1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1beta1.ValidatingWebhook{{
			Name: hook, TimeoutSeconds: ptr.To(int32(hookTimeout / time.Second)),
			ClientConfig: admissionregistrationv1beta1.WebhookClientConfig{
				Service:  &admissionregistrationv1beta1.ServiceReference{Namespace: serviceNamespace, Name: service, Port: ptr.To[int32](8443)},
				CABundle: cluster.Authority().PEM(),
			},
			Rules: []admissionregistrationv1beta1.RuleWithOperations{{
				Operations: []admissionregistrationv1beta1.OperationType{admissionregistrationv1beta1.Create},
				Rule:       admissionregistrationv1beta1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
}

// denyBad denies objects with a bad name.
func denyBad(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if strings.HasPrefix(q.Name, "bad") {
		return webhook.Deny(http.StatusConflict, "bad names are not taken")(q)
	}
	return webhook.Allow(q)
}

// TestOrdinaryWebhooksAreCalledAsKubeAPIServerCallsThem has the mesh call a
// mutating webhook that is a service, and validating ones by URL and, in the
// words of v1beta1, by service.
func TestOrdinaryWebhooksAreCalledAsKubeAPIServerCallsThem(t *testing.T) {
	const labels, names, beta = "labels.example.com", "names.example.com", "beta.example.com"
	labeller := serveService(t, "labels", webhook.Patch(`[{"op":"add","path":"/metadata/labels","value":{"labelled":"yes"}}]`))
	namer := webhook.Serve(t, cluster.Authority(), denyBad)
	older := serveService(t, "older", webhook.Allow)
	mutating := kube.Mutating("labels", atURL(labeller, labels, ""))
	mutating.Webhooks[0].ClientConfig.URL = nil
	mutating.Webhooks[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{
		Namespace: serviceNamespace, Name: "labels", Path: ptr.To("/label"),
	}
	r := newWebhookRoad(t, []string{inTable(labeller, "labels"), clusterName + "/" + inTable(older, "older:8443")},
		mutating, kube.Validating("names", atURL(namer, names, "/check/names")), serviceV1beta1("beta", beta, "older"))
	r.mutate(t)
	r.validate(t)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "good"))
	if err != nil {
		t.Fatalf("create a good pod: %v", err)
	}
	if pod.Labels["labelled"] != "yes" {
		t.Errorf("labels = %v, want labelled=yes", pod.Labels)
	}
	_, err = cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "bad"))
	wantError(t, err, http.StatusConflict, entryName, `hook "`+names+`" denied the request: bad names are not taken`)

	label, name, old := onlyCallOf(t, labeller, "good"), onlyCallOf(t, namer, "good"), onlyCallOf(t, older, "good")
	for _, want := range []struct {
		call                 webhook.Call
		client, url, version string
		mutated              bool // whether the object is as the mutating webhook left it
	}{
		{label, meshNameForService, "/label?timeout=3s", "admission.k8s.io/v1", false},
		{name, meshName, "/check/names?timeout=3s", "admission.k8s.io/v1", true},
		{old, meshName, "/?timeout=3s", "admission.k8s.io/v1beta1", true},
	} {
		call := want.call
		if call.Client != want.client || call.URL.String() != want.url || call.Version != want.version {
			t.Errorf("called by %s at %s with a review of %s, want %s, %s, %s",
				call.Client, call.URL, call.Version, want.client, want.url, want.version)
		}
		if object := string(call.Request.Object.Raw); strings.Contains(object, `"labelled":"yes"`) != want.mutated {
			t.Errorf("%s saw %s", want.url, object)
		}
	}
	wantSameRequest(t, name.Request, old.Request)
	if label.Request.UID == name.Request.UID || name.Request.UID == old.Request.UID {
		t.Error("two calls have the same uid")
	}
	for _, metric := range []string{"portcullis_webhook_targets 3", "portcullis_webhook_calls 0"} {
		if err := r.dispatcher.HasMetric(t.Context(), metric); err != nil {
			t.Error(err)
		}
	}
}

// onlyCallOf is the one call that the webhook got for the creation of a Pod.
func onlyCallOf(t *testing.T, server *webhook.Server, pod string) webhook.Call {
	t.Helper()
	var found []webhook.Call
	for _, c := range server.Calls() {
		if c.Request.Name == pod {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d calls for pod %s, want one", len(found), pod)
	}
	return found[0]
}

// wantSameRequest checks that two webhooks saw the same but for the uid, as
// kube-apiserver would have sent it.
func wantSameRequest(t *testing.T, a, b *admissionv1.AdmissionRequest) {
	t.Helper()
	first, second := *a, *b
	first.UID, second.UID = "", ""
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two webhooks of one review saw different requests (-first +second):\n%s", diff)
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	if a.Kind.Kind != "Pod" || a.Resource != pods || a.RequestResource == nil || *a.RequestResource != pods || a.RequestKind == nil {
		t.Errorf("kind %v, resource %v, requestKind %v, requestResource %v", a.Kind, a.Resource, a.RequestKind, a.RequestResource)
	}
	if a.DryRun == nil || len(a.Options.Raw) == 0 || len(a.UserInfo.Groups) == 0 {
		t.Errorf("dryRun %v, options %s, groups %v", a.DryRun, a.Options.Raw, a.UserInfo.Groups)
	}
}

// killedWebhookRoad has one hook with that policy, whose webhook is gone.
func killedWebhookRoad(t *testing.T, policy admissionregistrationv1.FailurePolicyType) *road {
	t.Helper()
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	hook := atURL(server, fragile, "/")
	hook.FailurePolicy = policy
	r := newWebhookRoad(t, nil, kube.Validating("fragile", hook))
	r.validate(t)
	if err := r.createDry(t.Context()); err != nil {
		t.Fatalf("create a pod while the webhook serves: %v", err)
	}
	server.Kill()
	return r
}

func TestAKilledWebhookFailsTheRequestsOfAHookThatFailsClosed(t *testing.T) {
	r := killedWebhookRoad(t, admissionregistrationv1.Fail)

	// The text behind "failed calling webhook" depends on whether the dispatcher has read the end of its idle connection yet.
	wantError(t, r.createDry(t.Context()), http.StatusInternalServerError, entryName, fragile, "failed calling webhook")
}

func TestAKilledWebhookLetsTheRequestsOfAHookThatFailsOpenPass(t *testing.T) {
	r := killedWebhookRoad(t, admissionregistrationv1.Ignore)
	var heard warnings
	config := cluster.Config()
	config.WarningHandler = &heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a pod: %v, want it admitted", err)
	}

	if all := heard.String(); !strings.Contains(all, fragile) || !strings.Contains(all, "skipped") {
		t.Errorf("warnings = %q, want one that names the skipped hook", all)
	}
}

// TestATraceLeadsIntoOrdinaryWebhooks looks for the span of the call in the
// traceparent that a webhook is sent.
func TestATraceLeadsIntoOrdinaryWebhooks(t *testing.T) {
	citest.Gate(t, "covers webhooks over HTTPS: a second")
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	r := newWebhookRoad(t, nil, kube.Validating("traced", atURL(server, "traced.example.com", "/")))
	r.validate(t)
	trace := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())

	err := cluster.Client().CoreV1().RESTClient().Post().Namespace(r.namespace).Resource("pods").
		VersionedParams(&metav1.CreateOptions{}, metav1.ParameterCodec).
		SetHeader("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01").
		Body(kube.Pod(r.namespace, "traced")).Do(t.Context()).Into(&corev1.Pod{})
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	parent := strings.Split(onlyCallOf(t, server, "traced").Header.Get("Traceparent"), "-")
	if len(parent) != 4 || parent[1] != trace || parent[3] != "01" {
		t.Fatalf("traceparent = %v, want one of trace %s", parent, trace)
	}
	eventually(t, "the webhook's parent is the span of the call", func() error {
		if !hasSpan(traces.Trace(trace), "call traced.example.com", parent[2]) {
			return fmt.Errorf("no span of the call %s", parent[2])
		}
		return nil
	})
}

func hasSpan(spans []collector.Span, name, id string) bool {
	for _, s := range spans {
		if s.Name == name && s.ID == id {
			return true
		}
	}
	return false
}

// TestAWebhookThatIsAnsweringIsWaitedForWhenTheDispatcherStops stops a
// dispatcher while a webhook holds a review.
func TestAWebhookThatIsAnsweringIsWaitedForWhenTheDispatcherStops(t *testing.T) {
	citest.Gate(t, "covers webhooks over HTTPS: a second")
	called, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release) // also when the test fails before
	server := webhook.Serve(t, cluster.Authority(), func(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		close(called)
		<-answer
		return webhook.Deny(http.StatusConflict, "said while the dispatcher stopped")(q)
	})
	r := newWebhookRoad(t, nil, kube.Validating("slow", atURL(server, "slow.example.com", "/")))
	r.validate(t)
	created, stopped := make(chan error, 1), make(chan struct{})
	go func() { created <- r.createDry(t.Context()) }()
	eventually(t, "the webhook holds the review", func() error {
		select {
		case <-called:
			return nil
		default:
			return errors.New("it was not called")
		}
	})

	go func() {
		defer close(stopped)
		r.dispatcher.Stop(t)
	}()
	eventually(t, "the dispatcher stops", func() error {
		if r.dispatcher.Ready(t.Context()) == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	release()

	wantError(t, <-created, http.StatusConflict, "said while the dispatcher stopped")
	<-stopped
}

// TestBuiltInObjectsAreDefaultedBetweenWebhooks has one webhook add a container
// and checks the object that the next one gets.
func TestBuiltInObjectsAreDefaultedBetweenWebhooks(t *testing.T) {
	first := webhook.Serve(t, cluster.Authority(), webhook.Patch(
		`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"registry.example.com/sidecar"}}]`))
	second := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	r := newWebhookRoad(t, nil,
		kube.Mutating("sidecars", atURL(first, "first.example.com", "/"), atURL(second, "second.example.com", "/")))
	r.mutate(t)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "defaulted"))
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	var shown corev1.Pod
	if err := json.Unmarshal(onlyCallOf(t, second, "defaulted").Request.Object.Raw, &shown); err != nil {
		t.Fatal(err)
	}
	// The API server mounts the service account into containers that hooks have added only after the hooks.
	mounts := cmpopts.IgnoreFields(corev1.Container{}, "VolumeMounts")
	if diff := cmp.Diff(pod.Spec.Containers, shown.Spec.Containers, mounts); diff != "" {
		t.Errorf("the second webhook saw other containers than the API server made of them (-API server +seen):\n%s", diff)
	}
}

// alphaReview is an AdmissionReview of Kubernetes 1.8, as far as the tests
// look at it.
type alphaReview struct {
	metav1.TypeMeta `json:",inline"`

	Spec struct {
		Operation string                      `json:"operation"`
		Name      string                      `json:"name"`
		Resource  metav1.GroupVersionResource `json:"resource"`
	} `json:"spec"`
	Status struct {
		Allowed bool           `json:"allowed"`
		Result  *metav1.Status `json:"status,omitempty"`
	} `json:"status"`
}

// serveAlpha starts a webhook of Kubernetes 1.8 that denies bad names. It has
// a certificate as a service of that name.
func serveAlpha(t *testing.T, name string) *httptest.Server {
	t.Helper()
	pair, err := cluster.Authority().Server(name + "." + serviceNamespace + ".svc")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review alphaReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.APIVersion != "admission.k8s.io/v1alpha1" {
			http.Error(w, fmt.Sprintf("no review of v1alpha1 (%s): %v", review.APIVersion, err), http.StatusBadRequest)
			return
		}
		review.Status.Allowed = !strings.HasPrefix(review.Spec.Name, "bad")
		if !review.Status.Allowed {
			review.Status.Result = &metav1.Status{Code: http.StatusConflict, Message: review.Spec.Operation + " of bad " + review.Spec.Resource.Resource}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// TestHooksAndAPIServersOfKubernetes18MeetThoseOfToday calls a webhook of an
// ExternalAdmissionHookConfiguration for kube-apiserver, and for a caller that
// asks as Kubernetes 1.8 did.
func TestHooksAndAPIServersOfKubernetes18MeetThoseOfToday(t *testing.T) {
	server := serveAlpha(t, "reservations")
	r := newWebhookRoad(t, []string{serviceNamespace + "/reservations=" + server.Listener.Addr().String()}, map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1alpha1", "kind": "ExternalAdmissionHookConfiguration",
		"metadata": map[string]any{"name": "reservations"},
		"externalAdmissionHooks": []any{map[string]any{
			"name": "reservations.example.com", "failurePolicy": "Fail",
			"clientConfig": map[string]any{
				"service": map[string]any{"namespace": serviceNamespace, "name": "reservations"}, "caBundle": cluster.Authority().PEM(),
			},
			"rules": []any{map[string]any{
				"operations": []any{"CREATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"},
			}},
		}},
	})
	r.validate(t)

	if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "good")); err != nil {
		t.Errorf("create a good pod: %v", err)
	}
	_, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "bad"))
	wantError(t, err, http.StatusConflict, entryName, `hook "reservations.example.com" denied the request: CREATE of bad pods`)

	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
	for name, allowed := range map[string]bool{"good": true, "bad": false} {
		answer, err := caller.Post(t.Context(), r.dispatcher.URL(clusterName, "validate"), fmt.Appendf(nil,
			`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{"kind":{"version":"v1","kind":"Pod"},`+
				`"resource":{"version":"v1","resource":"pods"},"operation":"CREATE","name":%q,"namespace":%q,"object":{}}}`, name, r.namespace))
		if err != nil {
			t.Fatal(err)
		}
		var review alphaReview
		if err := json.Unmarshal(answer.Body, &review); err != nil || answer.Status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", answer.Status, err, answer.Body)
		}
		if review.APIVersion != "admission.k8s.io/v1alpha1" || review.Status.Allowed != allowed ||
			!allowed && (review.Status.Result == nil || review.Status.Result.Code != http.StatusConflict) {
			t.Errorf("pod %s: %s", name, answer.Body)
		}
	}
}
