package conversion_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// FuzzDecodeReview compares DecodeReview with Kubernetes' decoder, and sends the decoded review through both encoders.
func FuzzDecodeReview(f *testing.F) {
	for _, members := range []string{
		``, `,"object":{"a":[1,true,null,"x"]},"oldObject":"None"`, `,"name":"\ud83d\u00e9","dryRun":true`,
		`,"userInfo":{"username":"u","groups":["a",null],"extra":{"k":["v"]}},"userInfo":{"groups":[null]}`,
		`,"kind":{"group":"g","version":"v","kind":"k"},"requestKind":null,"requestResource":{"resource":"r"}`,
		`},"response":{"uid":"u","status":{"code":1,"details":{"causes":[{}]}},"patch":"W10="`, `},"Kind":null,"x":[`,
	} {
		f.Add([]byte(v1(members)))
		f.Add([]byte(strings.Replace(v1(members), "/v1", "/v1beta1", 1)))
		f.Add([]byte(strings.NewReplacer("/v1", "/v1alpha1", `"request"`, `"spec"`, `"response"`, `"status"`).Replace(v1(members))))
	}
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		review, refused := checkDecode(t, o, body)
		if refused != nil {
			return
		}
		checkBody(t, review.GetRequest())
		written, err := conversion.EncodeReviewRequest(nil, review)
		if err != nil {
			t.Fatal(err)
		}
		again, refused := checkDecode(t, o, written)
		if refused != nil {
			t.Fatalf("%v\n%q", refused, written)
		}
		if _, err := proto.Marshal(review); err != nil {
			t.Fatalf("the review does not marshal: %v", err)
		}
		if diff := cmp.Diff(toKubernetes(review.GetRequest()), toKubernetes(again.GetRequest()), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q does not come back (-first +second):\n%s", body, diff)
		}
	})
}

// checkBody checks that the body of a request on the wire is that request.
func checkBody(t testing.TB, request *admissionv1.AdmissionRequest) {
	t.Helper()
	got := &hostv1.Review{}
	if err := proto.Unmarshal(bytes.Join(wire.EncodeBody(request, trace.SpanContext{}).Buffers(), nil), got); err != nil || !proto.Equal(request, got.GetRequest()) {
		t.Fatalf("the body differs (-want +got), %v:\n%s", err, cmp.Diff(request, got.GetRequest(), protocmp.Transform()))
	}
}

func TestBodiesOfTheCorpusAreTheRequests(t *testing.T) {
	for _, path := range corpus(t, "admissionreviews") {
		if review, err := conversion.DecodeReview(read(t, path)); err == nil {
			checkBody(t, review.GetRequest())
		}
	}
}

// FuzzPatch applies patches, compares with the library alone, and checks that differences lead where they should.
func FuzzPatch(f *testing.F) {
	for _, patch := range []string{
		`[{"op":"add","path":"/a/-","value":{"c":[1.0]}}]`, `[{"op":"remove","path":"/b~1"}]`, `[{"op":"test","path":""}]`,
		`[{"op":"replace","path":"","value":{"x":1e3}}]`, `[{"op":"move","from":"/a","path":"/c"}]`, `[{"op":"copy","from":"/a/0","path":"/a/-1"}]`,
		`[{"op":"test","path":"/a","value":[null]}]`, `[]`, `null`,
	} {
		f.Add([]byte(`{"a":[1,{"b":"<é"},null],"b/":{"~":12345678901234567890}}`), []byte(patch))
	}
	jsonpatch.AccumulatedCopySizeLimit = 3 << 20 // as kube-apiserver sets it
	f.Fuzz(func(t *testing.T, object, patch []byte) {
		got, err := conversion.ApplyPatch(object, patch)
		undecodable, inapplicable := errors.Is(err, conversion.ErrUndecodable), errors.Is(err, conversion.ErrInapplicable)
		if err != nil && undecodable == inapplicable {
			t.Fatalf("error of neither or both kinds: %v", err)
		}
		operations, decodeErr := jsonpatch.DecodePatch(patch)
		if len(patch) > 0 && undecodable != (decodeErr != nil) {
			t.Fatalf("error %v, the library says %v", err, decodeErr)
		}
		if err != nil || len(operations) == 0 {
			return
		}
		want, err := operations.Apply(object)
		if err != nil {
			t.Fatalf("applied, the library says %v", err)
		}
		if got.Changed && string(got.Raw) != string(want) {
			t.Fatalf("the library makes %q, not %q", want, got.Raw)
		}
		// The same answer as Kubernetes' comparison of untyped objects, but for integers that it reads as fractions.
		before, after := untyped(object), untyped(want)
		if before != nil && after != nil && !got.Changed && !sameValue(before, after) {
			t.Fatalf("unchanged\n%q\n%q", object, want)
		}
		if before != nil && after != nil && got.Changed && sameValue(before, after) && !beyondInt64(object, want) {
			t.Fatalf("changed\n%q\n%q", object, want)
		}
		checkDiff(t, string(object), string(want))
	})
}

// FuzzDiff checks that the difference of any two objects leads from one to the other.
func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,3]}`), []byte(`{"a":[2,{"b":null}],"~/":""}`))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		if untyped(from) == nil || untyped(to) == nil {
			return
		}
		checkDiff(t, string(from), string(to))
	})
}

// TestDiffPatchOfAnything is FuzzDiff over objects that resemble each other.
func TestDiffPatchOfAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		from := anObject(random, 3)
		to := anObject(random, 3)
		checkDiff(t, from, to)
		checkDiff(t, from, from)
		if patch, err := conversion.DiffPatch([]byte(from), []byte(from)); patch != nil || err != nil {
			t.Fatalf("%s differs from itself by %s, error %v", from, patch, err)
		}
	}
}

func anObject(random *rand.Rand, depth int) string {
	var b strings.Builder
	for i := range random.IntN(5) {
		if i > 0 {
			b.WriteString(" , ")
		}
		name, _ := json.Marshal([]string{"a", "b", "/", "~", "~1", "", "é<", "0", "-"}[random.IntN(9)])
		fmt.Fprintf(&b, "%s: %s", name, aValue(random, depth))
	}
	return "{" + b.String() + "}"
}

func aValue(random *rand.Rand, depth int) string {
	if depth == 0 || random.IntN(3) == 0 {
		return []string{"null", "true", "1", "1.0", "1.00", "2", "9007199254740993", `"a"`, `"\u0061"`, `"<\n"`, "[]", "{}"}[random.IntN(12)]
	}
	if random.IntN(2) == 0 {
		return anObject(random, depth-1)
	}
	items := make([]string, random.IntN(5))
	for i := range items {
		items[i] = aValue(random, depth-1)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// untyped reads an object as Kubernetes does; nil when it cannot be read.
func untyped(raw []byte) map[string]any {
	var out map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &out) != nil {
		return nil
	}
	return out
}

func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }

// beyondInt64 says whether a document may hold an integer with 19 digits or more.
func beyondInt64(documents ...[]byte) bool {
	for _, document := range documents {
		digits := 0
		for _, c := range document {
			if digits++; c < '0' || c > '9' {
				digits = 0
			}
			if digits >= 19 {
				return true
			}
		}
	}
	return false
}
