package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// pinnedImages is the validating hook of the sample configuration.
const pinnedImages = "pinned-images.portcullis.dev"

// dev is a running `portcullis dev`, and somebody who may send it reviews.
type dev struct {
	*mesh.Caller
	dir     string
	logFile string
	url     string // without the stage
	ready   ready
}

// ready is the content of the ready file.
type ready struct{ Bridge, CA, ClientCert, ClientKey string }

// startDev starts `portcullis dev` and reads from its ready file all that a
// user would.
func startDev(t *testing.T, env ...string) *dev {
	t.Helper()
	dir := t.TempDir()
	d := &dev{dir: filepath.Join(dir, "data"), logFile: filepath.Join(dir, "dev.log")}
	readyFile := filepath.Join(dir, "ready.json")
	started, err := process.Start(process.Command{
		Path: portcullis, Args: []string{"dev", "--ready-file=" + readyFile, "--data-dir=" + d.dir}, Env: env, LogFile: d.logFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(started.Stop(0), started.Err()); err != nil {
			t.Errorf("stop portcullis dev: %v", err)
		}
		if t.Failed() {
			t.Log(started.Tail(50))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := started.Await(ctx, func(context.Context) error { return mesh.ReadReadyFile(readyFile, &d.ready) }); err != nil {
		t.Fatal(err)
	}
	d.url = d.ready.Bridge + "/v1/clusters/dev/"
	return d.another(t)
}

// another is the same process with a caller that has a connection of its own.
func (d *dev) another(t *testing.T) *dev {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(d.ready.ClientCert, d.ready.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(readFile(t, d.ready.CA)) {
		t.Fatalf("%s holds no certificate", d.ready.CA)
	}
	other := *d
	other.Caller = mesh.NewCaller(t, pool, certificate, true)
	return &other
}

// post sends the review in a file and reads the response to its uid.
func (d *dev) post(t *testing.T, stage, file string) *admissionv1.AdmissionResponse {
	t.Helper()
	body := readFile(t, file)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		t.Fatalf("%s is no review: %v", file, err)
	}
	answer, err := d.Post(t.Context(), d.url+stage, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := answer.Response(review.Request.UID)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestDevAnswersAsItsSampleConfigurationSays(t *testing.T) {
	d := startDev(t)
	sample := filepath.Join(d.dir, "pod.json")

	wantDenied(t, d.post(t, "validate", sample), "nginx:latest")

	mutated := d.post(t, "mutate", sample)
	if !mutated.Allowed || !strings.Contains(string(mutated.Patch), "of-alice") {
		t.Errorf("mutated = %+v with patch %s, want the label that the second hook makes of the first's", mutated, mutated.Patch)
	}
}

func TestDevJudgesReviewsOfTheCorpus(t *testing.T) {
	citest.Gate(t, "covers portcullis dev: 3 s")
	for file, denied := range map[string]string{
		"kubewarden-privileged-pod.v1.json":          "alpine",
		"connaisseur-pod-ephemeralcontainer.v1.json": "", // its image is named by digest
		"kubewarden-deployment.v1.json":              "", // no Pod
	} {
		path := filepath.Join(corpus(t), "admissionreviews", file)
		t.Run(file, func(t *testing.T) {
			d := startDev(t)
			if denied != "" {
				wantDenied(t, d.post(t, "validate", path), denied)
				return
			}
			document := filepath.Join(d.dir, "config", "mesh.yaml") // which says which namespaces there are
			writeFile(t, document, strings.Replace(string(readFile(t, document)), "default: {}", "default: {}\n      test-connaisseur: {}", 1))
			eventually(t, "it is allowed", func() error {
				if response := d.post(t, "validate", path); !response.Allowed {
					return fmt.Errorf("denied with %+v", response.Result)
				}
				return nil
			})
		})
	}
}

// wantDenied fails the test unless the sample hook denied because of image.
func wantDenied(t *testing.T, response *admissionv1.AdmissionResponse, image string) {
	t.Helper()
	want := fmt.Sprintf("hook %q denied the request: image %q is not pinned", pinnedImages, image)
	if response.Allowed || response.Result.Code != http.StatusForbidden || !strings.HasPrefix(response.Result.Message, want) {
		t.Errorf("allowed = %v with %+v, want code 403 and: %s", response.Allowed, response.Result, want)
	}
}

func TestDevAnswers2000ConcurrentReviewsEachWithItsOwn(t *testing.T) {
	citest.Gate(t, "sends 2000 reviews at once: 3 s")
	const callers, reviews = 10, 2000
	d := startDev(t)
	var each [callers]*dev // with one connection: else each review would begin with a handshake, and 2,000 of these may take longer than one may
	for i := range each {
		each[i] = d.another(t)
		each[i].OverHTTP2()
		if err := each[i].reviewNumber(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	errs := make([]error, reviews)
	var all sync.WaitGroup
	for i := range reviews {
		all.Go(func() { errs[i] = each[i%callers].reviewNumber(t.Context(), i) })
	}
	all.Wait()
	t.Logf("%d reviews in %v", reviews, time.Since(begun).Round(time.Millisecond))
	var lost []error
	for _, err := range errs {
		if err != nil {
			lost = append(lost, err)
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d of %d were not answered as they should, the first with: %v", len(lost), reviews, errors.Join(lost[:min(5, len(lost))]...))
	}
}

// reviewNumber sends a review that differs from all others in its uid, its
// user and its image, and checks that the answer is the one to it.
func (d *dev) reviewNumber(ctx context.Context, i int) error {
	request := podRequest("default", fmt.Sprintf("registry.example.com/app-%d", i))
	request.UID = types.UID(fmt.Sprintf("uid-%d", i))
	request.UserInfo.Username = fmt.Sprintf("user-%d", i)
	if i%2 == 0 {
		response, err := d.Review(ctx, d.url+"validate", request)
		if err == nil && (response.Allowed || !strings.Contains(response.Result.Message, fmt.Sprintf("app-%d\" is not pinned", i))) {
			err = fmt.Errorf("review %d: allowed = %v, %+v", i, response.Allowed, response.Result)
		}
		return err
	}
	response, err := d.Review(ctx, d.url+"mutate", request)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := applyPatch(request.Object.Object, response.Patch, &pod); err != nil {
		return fmt.Errorf("review %d: %w", i, err)
	}
	if got, want := pod.Labels["portcullis.dev/cost-center"], fmt.Sprintf("of-user-%d", i); !response.Allowed || got != want {
		return fmt.Errorf("review %d: allowed = %v, label %q, want %q", i, response.Allowed, got, want)
	}
	return nil
}

// applyPatch decodes the object that a patch makes.
func applyPatch(object any, operations []byte, into any) error {
	before, err := json.Marshal(object)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return fmt.Errorf("patch %s: %w", operations, err)
	}
	patched, err := patch.Apply(before)
	if err != nil {
		return fmt.Errorf("patch %s: %w", operations, err)
	}
	return json.Unmarshal(patched, into)
}

func TestDevObeysAnEditAndIgnoresABrokenOne(t *testing.T) {
	citest.Gate(t, "covers portcullis dev: 5 s")
	d := startDev(t)
	file, sample := filepath.Join(d.dir, "config", "hooks.yaml"), filepath.Join(d.dir, "pod.json")
	original := string(readFile(t, file))
	edit := func(old, replacement string) {
		t.Helper()
		edited := strings.Replace(original, old, replacement, 1)
		if edited == original {
			t.Fatalf("%s has no %q", file, old)
		}
		writeFile(t, file, edited)
	}
	denied := func() error {
		if d.post(t, "validate", sample).Allowed {
			return errors.New("allowed")
		}
		return nil
	}
	allowed := func() error {
		if !d.post(t, "validate", sample).Allowed {
			return errors.New("denied")
		}
		return nil
	}

	// Each broken edit would allow the Pod, were it obeyed.
	const operations, without = "operations: [CREATE, UPDATE]", "operations: [UPDATE]"
	edit(operations, without+"\n    operatoins: [CREATE]")
	eventually(t, "the log says what is wrong", func() error { return logHas(d.logFile, "operatoins") })
	if err := denied(); err != nil {
		t.Errorf("with an unknown field: %v, want the last good version in force", err)
	}
	edit(operations, without+" ]")
	eventually(t, "the log says where the file is broken", func() error { return logHas(d.logFile, "not valid YAML") })
	if err := denied(); err != nil {
		t.Errorf("with a file that is no YAML: %v, want the last good version in force", err)
	}

	edit(operations, without)
	eventually(t, "a good edit is in force", allowed)
	writeFile(t, file, original)
	eventually(t, "taking it back is too", denied)
}

// corpus is the directory of the reference inputs; without one the test is
// skipped.
func corpus(t *testing.T) string {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tree.Corpus()); err != nil {
		t.Skipf("no corpus in %s", tree.Corpus())
	}
	return tree.Corpus()
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
