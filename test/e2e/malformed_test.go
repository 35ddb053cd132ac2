package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestEveryBodyIsAnswered posts everything that lies in the corpus, whole and
// damaged, where reviews are expected. Whatever it is, there is an answer, and
// the dispatcher goes on.
func TestEveryBodyIsAnswered(t *testing.T) {
	citest.Gate(t, "covers bodies that are no reviews: a second")
	const hook = "any.example.com"
	r := newRoad(t, kube.Validating("any", onPods(hook)))
	r.host(t, hostsdk.Validate(hook, allow))
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
	url := r.dispatcher.URL(clusterName, "validate")

	var posts sync.WaitGroup
	busy := make(chan struct{}, 8)
	bodies := 0
	for _, file := range corpusFiles(t) {
		body := readFile(t, file)
		for damage, damaged := range damages(body) {
			bodies++
			busy <- struct{}{}
			posts.Go(func() {
				defer func() { <-busy }()
				if err := answers(t.Context(), caller, url, damaged); err != nil {
					t.Errorf("%s, %s: %v", filepath.Base(file), damage, err)
				}
			})
		}
	}
	posts.Wait()
	t.Logf("%d bodies", bodies)

	if err := r.reviewer(t)(t.Context()); err != nil {
		t.Errorf("a good review after them: %v", err)
	}
}

// damages are a body and damaged copies of it.
func damages(body []byte) map[string][]byte {
	return map[string][]byte{
		"whole":            body,
		"nothing of it":    nil,
		"cut in half":      body[:len(body)/2],
		"last byte off":    body[:len(body)-1],
		"twice":            append(bytes.Clone(body), body...),
		"not UTF-8":        bytes.ReplaceAll(body, []byte("a"), []byte{0xff}),
		"without quotes":   bytes.ReplaceAll(body, []byte(`"`), nil),
		"numbers for text": bytes.ReplaceAll(body, []byte(`"uid": "`), []byte(`"uid": 7, "x": "`)),
		"deeper":           append(bytes.Repeat([]byte(`{"request":`), 20_000), body...),
	}
}

// answers is an error unless the body is answered: by an AdmissionReview with a
// uid, or in v1alpha1 with a verdict, or by a Status that names the mistake.
func answers(ctx context.Context, caller *mesh.Caller, url string, body []byte) error {
	answer, err := caller.Post(ctx, url, body)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	var said struct {
		Kind       string          `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Message    string          `json:"message"`
		Code       int             `json:"code"`
		Status     json.RawMessage `json:"status"`
		Response   struct {
			UID string `json:"uid"`
		} `json:"response"`
	}
	if err := json.Unmarshal(answer.Body, &said); err != nil {
		return fmt.Errorf("status %d with a body that is not JSON: %s", answer.Status, answer.Body)
	}
	verdict := said.Response.UID != ""
	if said.APIVersion == "admission.k8s.io/v1alpha1" {
		verdict = bytes.Contains(said.Status, []byte(`"allowed":`))
	}
	review := answer.Status == http.StatusOK && said.Kind == "AdmissionReview" && verdict
	refusal := answer.Status >= 400 && answer.Status < 500 && said.Kind == "Status" && said.Code == answer.Status && said.Message != ""
	if !review && !refusal {
		return fmt.Errorf("status %d: %s", answer.Status, answer.Body)
	}
	return nil
}

func corpusFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(corpus(t), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in the corpus: %v", err)
	}
	return files
}

// TestRequestsThatAreNoReviewsAreAnswered has mistakes that the mesh sees
// before it reads a body.
func TestRequestsThatAreNoReviewsAreAnswered(t *testing.T) {
	citest.Gate(t, "covers bodies that are no reviews: a second")
	r := newRoad(t, kube.Validating("any", onPods("any.example.com")))
	stranger, err := r.Authority().Client(kube.WebhookClientName) // the right name, from the wrong authority
	if err != nil {
		t.Fatal(err)
	}
	strange, err := stranger.TLS()
	if err != nil {
		t.Fatal(err)
	}
	other, err := cluster.Authority().Client("somebody-else")
	if err != nil {
		t.Fatal(err)
	}
	somebody, err := other.TLS()
	if err != nil {
		t.Fatal(err)
	}
	good := apiServerCertificate(t)
	path := r.dispatcher.URL(clusterName, "validate")
	for name, tc := range map[string]struct {
		certificate  tls.Certificate
		method, url  string
		contentType  string
		status       int
		noConnection bool
	}{
		"another method":        {certificate: good, method: http.MethodGet, url: path, status: http.StatusMethodNotAllowed},
		"another content type":  {certificate: good, url: path, contentType: "text/plain", status: http.StatusUnsupportedMediaType},
		"another path":          {certificate: good, url: r.dispatcher.Bridge + "/", status: http.StatusNotFound},
		"another stage":         {certificate: good, url: r.dispatcher.URL(clusterName, "admire"), status: http.StatusNotFound},
		"another cluster":       {certificate: good, url: r.dispatcher.URL("other", "validate"), status: http.StatusForbidden},
		"a timeout of nonsense": {certificate: good, url: path + "?timeout=soon", status: http.StatusBadRequest},
		"somebody else":         {certificate: somebody, url: path, status: http.StatusForbidden},
		"nobody":                {url: path, status: http.StatusUnauthorized},
		"a stranger":            {certificate: strange, url: path, noConnection: true},
	} {
		t.Run(name, func(t *testing.T) {
			caller := mesh.NewCaller(t, r.Authority().Pool(), tc.certificate, true)
			method, contentType := tc.method, tc.contentType
			if method == "" {
				method = http.MethodPost
			}
			if contentType == "" {
				contentType = "application/json"
			}
			request, err := http.NewRequestWithContext(t.Context(), method, tc.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", contentType)
			answer, err := caller.Do(request)
			if tc.noConnection {
				if err == nil {
					t.Errorf("answered with %d, want no connection", answer.Status)
				}
				return
			}
			if err != nil || answer.Status != tc.status {
				t.Errorf("answer = %d %s, %v, want status %d", answer.Status, answer.Body, err, tc.status)
			}
		})
	}
}
