package bridge

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// kube-apiserver's own code takes a bridge without memory for a failure of the entry, under its policy, and only when trying again has
// not helped. A review that is too large is another matter.
func TestWithoutMemoryThePolicyOfTheEntryDecides(t *testing.T) {
	t.Parallel()
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	small, large := 100, testLimit
	for name, test := range map[string]struct {
		policy   admissionregistrationv1.FailurePolicyType
		size     int
		refusals int // attempts for which there is no memory
		allowed  bool
		code     int32
		fails    bool // the webhook, as the API server sees it
	}{
		"An entry that fails closed refuses the write":                   {fail, small, 100, false, 500, true},
		"An entry that fails open lets it pass":                          {ignore, small, 100, true, 0, true},
		"An API server that is asked to tries again":                     {fail, small, 1, true, 0, false},
		"A review that is too large is denied by an entry that is open":  {ignore, large, 0, false, 413, false},
		"A review that is too large is denied by one that is not either": {fail, large, 0, false, 413, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for seconds that the API server is told to
			got := admitPod(t, test.policy, test.size, test.refusals)
			failed := strings.Contains(got.Message, "failed calling webhook")
			for key := range got.Audit {
				failed = failed || strings.HasPrefix(key, "failed-open.")
			}
			if got.Allowed != test.allowed || got.Code != test.code || failed != test.fails {
				t.Errorf("allowed %t, code %d, the webhook failed %t: %s", got.Allowed, got.Code, failed, got.Message)
			}
		})
	}
}

// admitPod lets kube-apiserver's code admit a Pod by an entry that leads to a bridge, which has no memory for so many
// attempts.
func admitPod(t *testing.T, policy admissionregistrationv1.FailurePolicyType, size, refusals int) oracle.Outcome {
	t.Helper()
	b := newBridge(t, testOptions(allow))
	var held []*memory.Reservation
	for i := 0; refusals > 0; i++ { // of so many clusters that nothing is left
		reservation, err := b.options.Memory.Reserve(fmt.Sprint("other-", i), max(1, (4<<20-b.options.Memory.InUse())/2))
		if err != nil {
			break
		}
		held = append(held, reservation)
	}
	var mu sync.Mutex
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = trusted()
		b.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals <= 0 {
			for _, reservation := range held {
				reservation.Release()
			}
			held = nil
		}
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // callers that give up are part of the test
	server.StartTLS()
	t.Cleanup(server.Close)

	url, none, seconds := server.URL+validatePath, admissionregistrationv1.SideEffectClassNone, int32(3)
	o := oracle.New(t, oracle.Options{
		Namespaces: map[string]map[string]string{"default": {}},
		Validating: []*admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "mesh"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "entry.portcullis.dev", FailurePolicy: &policy, SideEffects: &none, TimeoutSeconds: &seconds,
				AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"*"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				}},
			}},
		}},
	})
	got, err := o.Run(t.Context(), admissionv1.Stage_STAGE_VALIDATE, createPod(size))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// createPod is the creation of a Pod with an annotation of so many bytes.
func createPod(size int) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name:     "p", Namespace: "default", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{Username: "alice"},
		Object: &admissionv1.Object{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","annotations":{"x":%q}},`+
				`"spec":{"containers":[{"name":"c","image":"i"}]}}`, strings.Repeat("x", size))},
	}
}
