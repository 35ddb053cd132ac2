package conversion_test

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// aReview is the CREATE of a pod of about the given size, as an API server sends it.
func aReview(size int) []byte {
	const container = `{"name":"c%d","image":"registry.example.com/team/app:1.2.3","args":["--listen=:8080","--log-level=info"],` +
		`"ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"POD","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},` +
		`{"name":"QUOTED","value":"{\"a\":\"b\"}"}],"resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},` +
		`"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent","securityContext":{"runAsUser":1000,"readOnlyRootFilesystem":true}}`
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","namespace":"shop","labels":{"app":"web","tier":"front"}},"spec":{"containers":[`
	for i := 0; len(pod) < size; i++ {
		if i > 0 {
			pod += ","
		}
		pod += fmt.Sprintf(container, i)
	}
	pod += `],"restartPolicy":"Always","serviceAccountName":"web","tolerations":[{"key":"a","operator":"Exists"}]},"status":{}}`
	names := func(third, name string) string { return `{"group":"","version":"v1","` + third + `":"` + name + `"}` }
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":` +
		names("kind", "Pod") + `,"resource":` + names("resource", "pods") + `,"requestKind":` + names("kind", "Pod") + `,"requestResource":` +
		names("resource", "pods") + `,"namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller",` +
		`"uid":"13076e42-1513-11ea-b3fc-02897404852e","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"],` +
		`"extra":{"authentication.kubernetes.io/credential-id":["JTI=0df28fbd-5f5f-11e8-bc74-36e6bb280816"]}},"object":` + pod +
		`,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`)
}

// sizes of pods that the benchmarks use, in bytes.
var sizes = []struct {
	name  string
	bytes int
}{{"2kB", 2_000}, {"20kB", 20_000}, {"1MB", 1_000_000}}

// forSizes runs a benchmark for each size. prepare returns the measured function; its own work is not measured.
func forSizes(b *testing.B, prepare func(body []byte) func() error) {
	b.Helper()
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			body := aReview(size.bytes)
			run := prepare(body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeReview(b *testing.B) {
	forSizes(b, func(body []byte) func() error {
		return func() error { _, err := conversion.DecodeReview(body); return err }
	})
}

// BenchmarkDecodeReviewKubernetes is the baseline of DecodeReview.
func BenchmarkDecodeReviewKubernetes(b *testing.B) {
	o := newOracle(b)
	forSizes(b, func(body []byte) func() error {
		return func() error { _, err := o.review(body); return err }
	})
}

func BenchmarkEncodeBody(b *testing.B) {
	forSizes(b, func(body []byte) func() error {
		review := decodeForBenchmark(b, body)
		return func() error { wire.EncodeBody(review.GetRequest(), trace.SpanContext{}); return nil }
	})
}

func BenchmarkEncodeSharedReview(b *testing.B) {
	forSizes(b, func(body []byte) func() error {
		review := decodeForBenchmark(b, body)
		return func() error {
			shared, err := conversion.EncodeSharedReview(review)
			if err == nil {
				shared.Pieces(review.GetRequest().GetUid())
			}
			return err
		}
	})
}

func BenchmarkEncodeReview(b *testing.B) {
	responses := map[string]*admissionv1.AdmissionResponse{
		"allowed": {Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Allowed: true},
		"denied": {Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Status: &admissionv1.Status{
			Status: "Failure", Reason: "Forbidden", Code: 403, Message: `hook "imagepolicy.example.com" denied the request: image not signed`,
		}, Warnings: []string{"a warning"}, AuditAnnotations: map[string]string{"a": "1", "b": "2"}},
		"patched-20kB": {
			Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Allowed: true, PatchType: "JSONPatch",
			Patch: []byte(`[{"op":"add","path":"/a","value":"` + strings.Repeat("x", 20_000) + `"}]`),
		},
	}
	for name, response := range responses {
		b.Run(name, func(b *testing.B) {
			answer := &admissionv1.ReviewResponse{ApiVersion: apiV1, Response: response}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conversion.EncodeReview(nil, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApplyPatch(b *testing.B) {
	patch := []byte(`[{"op":"add","path":"/metadata/labels/new","value":"x"},{"op":"add","path":"/spec/tolerations/-","value":{"key":"b"}}]`)
	forSizes(b, func(body []byte) func() error {
		object := decodeForBenchmark(b, body).GetRequest().GetObject().GetRaw()
		return func() error { _, err := conversion.ApplyPatch(object, patch); return err }
	})
}

func BenchmarkDiffPatch(b *testing.B) {
	patch := []byte(`[{"op":"add","path":"/metadata/labels/new","value":"x"},{"op":"add","path":"/spec/containers/0/env/0","value":{"name":"A"}}]`)
	forSizes(b, func(body []byte) func() error {
		object := decodeForBenchmark(b, body).GetRequest().GetObject().GetRaw()
		patched, err := conversion.ApplyPatch(object, patch)
		if err != nil {
			b.Fatal(err)
		}
		return func() error { _, err := conversion.DiffPatch(object, patched.Raw); return err }
	})
}

func decodeForBenchmark(b testing.TB, body []byte) *admissionv1.ReviewRequest {
	b.Helper()
	review, err := conversion.DecodeReview(body)
	if err != nil {
		b.Fatal(err)
	}
	return review
}

func BenchmarkDecodeResponse(b *testing.B) {
	for name, members := range map[string]string{
		"allowed": `,"allowed":true`,
		// As controller-runtime answers.
		"allowed-with-status": `,"allowed":true,"status":{"metadata":{},"code":200}`,
		"denied":              `,"allowed":false,"status":{"metadata":{},"status":"Failure","message":"image not signed","reason":"Forbidden","code":403}`,
		"patched-20kB":        `,"allowed":true,"patchType":"JSONPatch","patch":"` + strings.Repeat("W10x", 5_000) + `"`,
	} {
		b.Run(name, func(b *testing.B) {
			body := []byte(answer(members))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conversion.DecodeResponse(body, apiV1, askedUID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkContent(b *testing.B) {
	fast := func(document []byte) (map[string]any, error) {
		content, _, err := conversion.Content(document)
		return content, err
	}
	for name, read := range map[string]func([]byte) (map[string]any, error){"fast": fast, "slow": conversion.ContentSlowly} {
		b.Run(name, func(b *testing.B) {
			forSizes(b, func(body []byte) func() error {
				return func() error {
					_, err := read(body)
					return err
				}
			})
		})
	}
}
