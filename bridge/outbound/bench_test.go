package outbound

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	k8sv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// hooksOfABatch is how many hooks the benchmarks call at once.
const hooksOfABatch = 8

// quick is a webhook that does as little as it can: it finds the uid and allows.
func quick(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(quickAnswer(body))
}

func quickAnswer(body []byte) []byte {
	const before, length = `"uid":"`, 36
	at := bytes.Index(body, []byte(before)) + len(before)
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}`, body[at:at+length])
}

// createPod is the CREATE of a pod of about the given size.
func createPod(size int) *admissionv1.AdmissionRequest {
	r := createWidget()
	container := `{"name":"c","image":"registry.example.com/team/app:1.2.3","resources":{"limits":{"cpu":"500m"}},"imagePullPolicy":"IfNotPresent"}`
	containers := strings.Repeat(container+",", size/len(container)) + container
	r.Object.Raw = []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","namespace":"shop"},"spec":{"containers":[` + containers + `]}}`)
	return r
}

// forBatches runs a benchmark of one call set for each size.
func forBatches(b *testing.B, prepare func(b *testing.B, r *admissionv1.AdmissionRequest) (run func())) {
	b.Helper()
	for _, size := range []int{2_000, 20_000} {
		b.Run(fmt.Sprintf("%dkB", size/1000), func(b *testing.B) {
			r := createPod(size)
			run := prepare(b, r)
			run()
			b.SetBytes(int64(hooksOfABatch * len(r.GetObject().GetRaw())))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// batches is the loop body in the benchmarks of a client.
func batches(b *testing.B, c *Client, h *match.Hook, r *admissionv1.AdmissionRequest) func() {
	results := make(chan review.Result, hooksOfABatch)
	return func() {
		batch := &review.CallSet{Request: r}
		for range hooksOfABatch {
			batch.Calls = append(batch.Calls, review.Call{Hook: h, Deadline: time.Now().Add(patience)})
		}
		c.Start(context.Background(), batch, func(_ int, r review.Result) { results <- r })
		for range hooksOfABatch {
			if r := <-results; !r.Verdict.GetAllowed() {
				b.Fatal(r.Failure)
			}
		}
	}
}

// BenchmarkBatch calls eight webhooks over TLS. Both ends are measured.
func BenchmarkBatch(b *testing.B) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		b.Run(name, func(b *testing.B) {
			forBatches(b, func(b *testing.B, r *admissionv1.AdmissionRequest) func() {
				w := serve(b, quick, func(s *httptest.Server) { s.EnableHTTP2 = http2 })
				return batches(b, newClient(b, Options{}), w.hook("/"), r)
			})
		})
	}
}

// instant is a network without a cost.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	body := make([]byte, 512) // The uid is in the front.
	_, _ = r.Body.Read(body)
	answer := quickAnswer(body)
	return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(answer)), Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

// BenchmarkBatchAlone measures the cost of this package beside HTTP.
func BenchmarkBatchAlone(b *testing.B) {
	w := serve(b, quick)
	forBatches(b, func(b *testing.B, r *admissionv1.AdmissionRequest) func() {
		c := newClient(b, Options{})
		c.targets.dial = func(*endpoint) (*targetTransport, error) {
			return &targetTransport{RoundTripper: instant{}, closeIdle: func() {}}, nil
		}
		return batches(b, c, w.hook("/"), r)
	})
}

// BenchmarkBatchKubernetes is the yardstick of BenchmarkBatch: kube-apiserver's client over HTTP/1.1, with the object as
// unstructured bytes, which spares it the encoding of a built-in kind.
func BenchmarkBatchKubernetes(b *testing.B) {
	forBatches(b, func(b *testing.B, r *admissionv1.AdmissionRequest) func() {
		w := serve(b, quick)
		cm, err := webhookutil.NewClientManager([]schema.GroupVersion{k8sv1.SchemeGroupVersion}, k8sv1.AddToScheme)
		if err != nil {
			b.Fatal(err)
		}
		cm.SetAuthenticationInfoResolver(noIdentities())
		cm.SetServiceResolver(webhookutil.NewDefaultServiceResolver())
		return func() {
			var all sync.WaitGroup
			for range hooksOfABatch {
				all.Go(func() {
					if err := askAsKubernetes(&cm, w, r); err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
		}
	})
}

// askAsKubernetes is the middle of callHook of k8s.io/apiserver/pkg/admission/plugin/webhook/validating.
func askAsKubernetes(cm *webhookutil.ClientManager, w *webhook, r *admissionv1.AdmissionRequest) error {
	uid := types.UID(uuid.NewString())
	request := &k8sv1.AdmissionReview{Request: &k8sv1.AdmissionRequest{
		UID: uid, Name: r.GetName(), Namespace: r.GetNamespace(), Operation: k8sv1.Create,
		Object: runtime.RawExtension{Raw: r.GetObject().GetRaw()}, Options: runtime.RawExtension{Raw: r.GetOptions().GetRaw()},
	}}
	client, err := cm.HookClient(webhookutil.ClientConfig{Name: "hook.example.com", URL: w.URL, CABundle: w.ca})
	if err != nil {
		return err
	}
	response := &k8sv1.AdmissionReview{}
	if err := client.Post().Body(request).Timeout(patience).Do(context.Background()).Into(response); err != nil {
		return err
	}
	_, err = webhookrequest.VerifyAdmissionResponse(uid, false, response)
	return err
}
