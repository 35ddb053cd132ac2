package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	upstream "k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// roundTrip is the network of the original: its webhooks are a function.
type roundTrip func(body []byte) []byte

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(f(body))),
	}, nil
}

// original is the converter of k8s.io/apiextensions-apiserver, asked as k8s.io/apiserver's webhook plugins ask it.
type original struct {
	convertor runtime.ObjectConvertor
	answer    func(review []byte) []byte
}

func newOriginal(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *original {
	t.Helper()
	o := &original{}
	wrapper := func(webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
		return &webhookutil.AuthenticationInfoResolverDelegator{ClientConfigForFunc: func(string) (*rest.Config, error) {
			return &rest.Config{Transport: roundTrip(func(body []byte) []byte { return o.answer(body) })}, nil
		}}
	}
	factory, err := upstream.NewCRConverterFactory(webhookutil.NewDefaultServiceResolver(), wrapper)
	if err != nil {
		t.Fatal(err)
	}
	if o.convertor, _, err = factory.NewConverter(crd); err != nil {
		t.Fatal(err)
	}
	return o
}

// convert is ConvertToGVK of k8s.io/apiserver/pkg/admission/plugin/webhook/generic, with the decoding before it.
func (o *original) convert(raw []byte, to schema.GroupVersionKind) (map[string]any, error) {
	in := &unstructured.Unstructured{}
	if err := in.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(to)
	if err := o.convertor.Convert(in, out, nil); err != nil {
		return nil, err
	}
	out.SetGroupVersionKind(to)
	return out.Object, nil
}

// tree is an object as the original reads it.
func tree(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}

// comparison is a definition with strategy Webhook, here and there.
type comparison struct {
	original *original
	ours     *Definition
}

func newComparison(t testing.TB, reviewVersions ...string) *comparison {
	t.Helper()
	crd := withWebhook(definition("v1", "v2"), "https://webhook.example.com/convert", nil, reviewVersions...)
	return &comparison{original: newOriginal(t, crd), ours: compiled(t, crd)}
}

// compare converts an object here and there. %UID% in the answer is the uid of the review. It returns the result.
func (c *comparison) compare(t testing.TB, raw []byte, answer string) (converted []byte, failed error) {
	t.Helper()
	var asked [2]map[string]any
	respond := func(to *map[string]any) func([]byte) []byte {
		return func(review []byte) []byte {
			*to = tree(t, []byte(quoted(t, tree(t, review)))) // The original does not keep the spelling of 1.0.
			request, _ := (*to)["request"].(map[string]any)
			uid, _ := request["uid"].(string)
			if len(uid) != len("00000000-0000-0000-0000-000000000000") {
				t.Errorf("uid %q", uid)
			}
			request["uid"] = "%UID%"
			return []byte(strings.ReplaceAll(answer, "%UID%", uid))
		}
	}
	c.original.answer = respond(&asked[0])
	want, wantErr := c.original.convert(raw, widget("v2"))
	ours := respond(&asked[1])
	got, err := c.ours.Convert(t.Context(), raw, widget("v2"), callerFunc(func(review []byte) ([]byte, error) { return ours(review), nil }))
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, want %v, of %s after %s", err, wantErr, raw, answer)
	}
	if diff := cmp.Diff(asked[0], asked[1]); diff != "" {
		t.Errorf("the webhook was asked (-want +got):\n%s", diff)
	}
	if err == nil && !reflect.DeepEqual(tree(t, got), want) {
		t.Fatalf("got %s, want %v, of %s after %s", got, want, raw, answer)
	}
	return got, err
}

// success is an answer with converted objects.
func success(version string, objects ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/%s","kind":"ConversionReview","response":{"uid":"%%UID%%",`+
		`"result":{"status":"Success"},"convertedObjects":[%s]}}`, version, strings.Join(objects, ","))
}

// quoted is text as JSON.
func quoted(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
