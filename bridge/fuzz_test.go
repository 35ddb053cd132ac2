package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// moods are the behaviours of the Reviewer behind a fuzzed bridge.
func moods(mood byte) reviewerFunc {
	return func(ctx context.Context, r *review.Request) (review.Answer, error) {
		switch mood % 5 {
		case 0:
			return review.Answer{}, errors.New("stale")
		case 1:
			panic("boom")
		case 2:
			return review.Answer{}, nil
		case 3:
			return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: r.Admission.GetUid()}}, nil
		default:
			return allow(ctx, r)
		}
	}
}

const allowing = 4

// trusted is the state of a connection from an API server.
func trusted() *tls.ConnectionState {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}}
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

// Any input has an answer in JSON. It never allows a request that no hook allowed, and answers a known uid with 200 unless
// nothing may judge. Behind /enforce the status is the verdict.
func FuzzHandler(f *testing.F) {
	good := reviewOf("u1", 0)
	const contentType = "application/json"
	for mood := range byte(5) {
		f.Add(http.MethodPost, validatePath, "timeout=1s", contentType, "", []byte(good), mood, int64(len(good)))
	}
	f.Add(http.MethodPost, validatePath, "", contentType, "", []byte(reviewOf("u1", fuzzLimit+1)), byte(allowing), int64(fuzzLimit+1))
	f.Add(http.MethodPost, validatePath, "", contentType, "", []byte(reviewOf("u1", fuzzLimit+1)), byte(allowing), int64(-1))
	f.Add(http.MethodPost, validatePath, "", contentType, "", []byte(good[:150]), byte(allowing), int64(200))
	f.Add(http.MethodPost, validatePath, "", contentType, "", []byte(alphaReview), byte(allowing), int64(-1))
	f.Add(http.MethodPost, validatePath, "", contentType, "", []byte(alphaReview), byte(1), int64(-1))
	f.Add(http.MethodGet, "/v1/clusters//mutate/", "timeout=%", "text/plain", "gzip", []byte("{"), byte(allowing), int64(1))
	f.Add("\x00", "*", "&;", contentType+";;", "identity", []byte(nil), byte(allowing), int64(0))
	for mood := range byte(5) {
		f.Add(http.MethodPost, enforcePath, "", contentType, "", []byte(specOf(goodSpec)), mood, int64(-1))
	}
	f.Add(http.MethodPost, enforcePath, "", contentType, "", []byte(reviewOf("u1", fuzzLimit+1)), byte(allowing), int64(-1))
	f.Add(http.MethodPost, enforcePath, "", "text/plain", "", []byte("{}"), byte(allowing), int64(-1))
	f.Add(http.MethodPost, "/v1/clusters/prod-1/validate:x", "", contentType, "", []byte(good), byte(allowing), int64(-1))

	var bridges []*Bridge
	for mood := range byte(5) {
		options := testOptions(moods(mood))
		options.MaxBodyBytes = fuzzLimit
		bridges = append(bridges, newBridge(f, options))
	}
	f.Fuzz(func(t *testing.T, method, path, query, contentType, encoding string, body []byte, mood byte, length int64) {
		b := bridges[mood%5]
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path, RawQuery: query}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}, "Content-Encoding": {encoding}},
			Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: max(-1, length), TLS: trusted(),
		}
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		checkFuzzed(t, r, w, body, mood)
		if held := b.options.Memory.InUse(); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

// fuzzLimit keeps the bodies of the fuzzer small.
const fuzzLimit = 2000

func checkEnforced(t *testing.T, r *http.Request, w *httptest.ResponseRecorder, body []byte, mood byte) {
	t.Helper()
	if !slices.Contains([]int{204, 400, 404, 405, 503}, w.Code) {
		t.Fatalf("status = %d, want one of the protocol", w.Code)
	}
	if w.Code == http.StatusServiceUnavailable && mood%5 != 0 {
		t.Errorf("503 although there was somebody to judge")
	}
	if w.Code == http.StatusNoContent {
		if _, refused := decodePosted(body); refused != nil || mood%5 != allowing || r.ContentLength > int64(len(body)) || w.Body.Len() > 0 {
			t.Errorf("admitted what no hook saw (%+v), or with a body", refused)
		}
		return
	}
	var answer struct {
		Status any `json:"status"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Status == nil {
		t.Errorf("the answer has no status (error %v): %q", err, w.Body)
	}
}

func checkFuzzed(t *testing.T, r *http.Request, w *httptest.ResponseRecorder, body []byte, mood byte) {
	t.Helper()
	if strings.HasPrefix(r.URL.Path, enforcePath) {
		checkEnforced(t, r, w, body, mood)
		return
	}
	known := []int{200, 400, 403, 404, 405, 413, 415, 503}
	if !slices.Contains(known, w.Code) {
		t.Fatalf("status = %d, want one of the table", w.Code)
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Fatalf("the answer is no JSON: %q", w.Body)
	}
	var answer struct {
		APIVersion string `json:"apiVersion"`
		Response   struct {
			UID     string `json:"uid"`
			Allowed bool   `json:"allowed"`
		} `json:"response"`
		Status any `json:"status"` // in v1alpha1 the verdict, else the word "Failure"
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	alpha := answer.APIVersion == patchless
	if verdict, ok := answer.Status.(map[string]any); ok && alpha {
		answer.Response.Allowed, _ = verdict["allowed"].(bool)
	}
	if answer.Response.Allowed {
		if _, err := conversion.DecodeReview(body); err != nil || mood%5 != allowing || r.ContentLength > int64(len(body)) {
			t.Errorf("allowed what no hook saw (error %v)", err)
		}
	}
	if (w.Code == http.StatusOK) != (answer.Response.UID != "" || alpha) {
		t.Errorf("status %d with uid %q", w.Code, answer.Response.UID)
	}
	// The part of the body that was read has its uid.
	read := body
	if r.ContentLength >= 0 && r.ContentLength < int64(len(body)) {
		read = body[:r.ContentLength]
	}
	accepted := r.Method == http.MethodPost && r.URL.Path == validatePath && r.URL.RawQuery == "" &&
		r.Header.Get("Content-Type") == "application/json" && strings.Trim(r.Header.Get("Content-Encoding"), "") == ""
	uid, _, ok := conversion.DecodeHead(read[:min(len(read), fuzzLimit)])
	if accepted && ok && w.Code != http.StatusOK && (w.Code != http.StatusServiceUnavailable || mood%5 != 0) {
		t.Errorf("status %d although the uid %q is known", w.Code, uid)
	}
}
