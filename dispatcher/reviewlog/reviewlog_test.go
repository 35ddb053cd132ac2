package reviewlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/reviewlog"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// reviewer denies objects with the name "bad", and fails for "none".
type reviewer struct{}

func (reviewer) Review(_ context.Context, r *review.Request) (review.Answer, error) {
	if r.Admission.GetName() == "none" {
		return review.Answer{}, errors.New("no configuration")
	}
	a := &admissionv1.AdmissionResponse{Allowed: r.Admission.GetName() != "bad"}
	if !a.GetAllowed() {
		a.Status = &admissionv1.Status{Message: "bad name"}
	}
	return review.Answer{Response: a}, nil
}

// request is a review of an object.
func request(cluster, resource, name, object string) *review.Request {
	group, resource, _ := strings.Cut(resource, "/")
	return &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: cluster, Operation: "CREATE", Name: name, Resource: &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		UserInfo: &admissionv1.UserInfo{Username: "jane", Extra: map[string]*admissionv1.ExtraValue{"token": {}}},
		Object:   &admissionv1.Object{Raw: []byte(object)},
	}}
}

// laboratory is a log in a directory, with a clock.
type laboratory struct {
	*reviewlog.Log

	dir     string
	metrics *prometheus.Registry
	now     time.Time
}

func newLaboratory(t *testing.T, o reviewlog.Options) *laboratory {
	t.Helper()
	l := &laboratory{dir: filepath.Join(t.TempDir(), "reviews"), metrics: prometheus.NewRegistry(), now: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)}
	if o.Dir != "" {
		l.dir = o.Dir
	}
	o.Dir, o.Metrics, o.Now = l.dir, l.metrics, func() time.Time { return l.now }
	var err error
	if l.Log, err = reviewlog.New(reviewer{}, o); err != nil {
		t.Fatal(err)
	}
	return l
}

// review has a review judged.
func (l *laboratory) review(t *testing.T, r *review.Request) {
	t.Helper()
	if _, err := l.Review(t.Context(), r); err != nil && r.Admission.GetName() != "none" {
		t.Fatal(err)
	}
}

// written ends the log, and returns its files with their lines.
func (l *laboratory) written(t *testing.T) map[string][]string {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := l.Run(ended); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	err := filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(l.dir, path)
		all[name] = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// results are the counts of the metric.
func (l *laboratory) results(t *testing.T, want string) {
	t.Helper()
	const name = "portcullis_recorded_reviews_total"
	want = "# HELP " + name + " Reviews for --record: written, dropped for want of room or of a disk, or left out: dry runs, and secrets.\n# TYPE " + name +
		" counter\n" + want
	if err := testutil.GatherAndCompare(l.metrics, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func TestReviewsAreWrittenByCluster(t *testing.T) {
	l := newLaboratory(t, reviewlog.Options{})
	l.review(t, request("prod", "/pods", "a", "{\"kind\":\"Pod\",\n \"spec\":{}}"))
	l.review(t, request("prod", "/pods", "bad", `{"kind":"Pod"}`))
	l.review(t, request("dev", "apps/deployments", "c", `{}`))
	l.review(t, request("dev", "/secrets", "s", `{"data":{"a":"b"}}`))
	l.review(t, request("dev", "/pods", "none", `{}`))
	dry := request("dev", "/pods", "e", `{}`)
	dry.Admission.DryRun = new(bool)
	*dry.Admission.DryRun = true
	l.review(t, dry)
	l.review(t, request("../up", "/pods", "d", `{}`))
	written := l.written(t)
	names := []string{"dev/20261128T100000.000000000Z.jsonl", "prod/20261128T100000.000000000Z.jsonl"}
	if len(written) != 2 || len(written[names[0]]) != 1 || len(written[names[1]]) != 2 {
		t.Fatalf("%v", written)
	}
	l.results(t, "portcullis_recorded_reviews_total{result=\"dropped\"} 1\nportcullis_recorded_reviews_total{result=\"left_out\"} 2\n"+
		"portcullis_recorded_reviews_total{result=\"written\"} 3\n")
	var line struct {
		Time     time.Time `json:"time"`
		Cluster  string    `json:"cluster"`
		Stage    string    `json:"stage"`
		Response struct {
			Allowed bool `json:"allowed"`
			Status  struct {
				Message string `json:"message"`
			} `json:"status"`
		} `json:"response"`
	}
	if err := json.Unmarshal([]byte(written[names[1]][1]), &line); err != nil {
		t.Fatal(err)
	}
	if !line.Time.Equal(l.now) || line.Cluster != "prod" || line.Stage != "validate" || line.Response.Allowed || line.Response.Status.Message != "bad name" {
		t.Errorf("%+v", line)
	}
	decoded, err := conversion.DecodeReview([]byte(written[names[1]][0]))
	if err != nil || decoded.GetRequest().GetName() != "a" || string(decoded.GetRequest().GetObject().GetRaw()) != `{"kind":"Pod","spec":{}}` {
		t.Errorf("%v, %v", err, decoded)
	}
}

func TestValuesAreRedacted(t *testing.T) {
	for name, of := range map[string]struct{ object, want string }{
		"the data of a ConfigMap": {`{"kind":"ConfigMap","data":{"a":"b"},"binaryData":{"c":"ZA=="}}`, `{"kind":"ConfigMap","data":{"a":"redacted"},"binaryData":{"c":"redacted"}}`},
		"variables": {
			`{"spec":{"containers":[{"env":[{"name":"A","value":"b"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}}`,
			`{"spec":{"containers":[{"env":[{"name":"A","value":"redacted"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}}`,
		},
		"fields with the name of a secret": {
			`{"spec":{"password":"a","adminPassword":"b","apiKey":"c","secretName":"s","automountServiceAccountToken":false,"tokens":["t"]}}`,
			`{"spec":{"password":"redacted","adminPassword":"redacted","apiKey":"redacted","secretName":"s","automountServiceAccountToken":false,"tokens":["t"]}}`,
		},
		"copies in metadata": {
			`{"metadata":{"managedFields":[{}],"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","a":"b"}}}`,
			`{"metadata":{"managedFields":[],"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"redacted","a":"b"}}}`,
		},
		"large numbers": {`{"n":12345678901234567890}`, `{"n":12345678901234567890}`},
	} {
		for _, values := range []bool{false, true} {
			want := of.want
			if values {
				want = of.object
			}
			l := newLaboratory(t, reviewlog.Options{Values: values})
			l.review(t, request("prod", "/pods", "a", of.object))
			for _, lines := range l.written(t) {
				var line struct {
					Request struct {
						Object   json.RawMessage `json:"object"`
						UserInfo struct {
							Extra map[string]any `json:"extra"`
						} `json:"userInfo"`
					} `json:"request"`
				}
				if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
					t.Fatal(err)
				}
				var got, wanted any
				if err := errors.Join(json.Unmarshal(line.Request.Object, &got), json.Unmarshal([]byte(want), &wanted)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(wanted, got); diff != "" || (len(line.Request.UserInfo.Extra) > 0) != values {
					t.Errorf("%s, values %t: %s%v", name, values, diff, line.Request.UserInfo)
				}
			}
		}
	}
}

// TestFilesAreBounded by their bytes, of which the cluster with most loses the oldest, and by their age.
func TestFilesAreBounded(t *testing.T) {
	citest.Sequential(t)
	o := reviewlog.Options{Dir: t.TempDir(), Bytes: reviewlog.MinBytes, Age: 24 * time.Hour}
	large := fmt.Sprintf(`{"kind":"Pod","spec":{"note":%q}}`, strings.Repeat("x", 1<<20))
	var l *laboratory
	for i := range 4 { // processes, each finds the files of earlier processes
		l = newLaboratory(t, o)
		if i == 0 {
			l.review(t, request("quiet", "/pods", "first", "{}"))
		}
		for range 10 { // MiB, which may wait together
			l.review(t, request("loud", "/pods", "p", large))
		}
		l.written(t)
	}
	sum, clusters := int64(0), map[string]int{}
	for name, lines := range l.written(t) {
		cluster, _, _ := strings.Cut(name, "/")
		clusters[cluster] += len(lines)
		for _, line := range lines {
			sum += int64(len(line) + 1)
		}
	}
	if sum > reviewlog.MinBytes || clusters["quiet"] != 1 || clusters["loud"] < 10 || clusters["loud"] > 16 {
		t.Errorf("%d bytes, %v", sum, clusters)
	}

	next := newLaboratory(t, o)
	next.now = l.now.Add(26 * time.Hour)
	next.review(t, request("quiet", "/pods", "second", "{}"))
	if written := next.written(t); len(written) != 1 {
		t.Errorf("%d files after their age", len(written))
	}
}

// TestAFloodLeavesRoomForOthers in the memory of reviews that wait.
func TestAFloodLeavesRoomForOthers(t *testing.T) {
	l := newLaboratory(t, reviewlog.Options{})
	for i := range 10_000 {
		l.review(t, request("loud", "/pods", fmt.Sprint("p", i), "{}"))
	}
	l.review(t, request("quiet", "/pods", "a", "{}"))
	clusters := map[string]int{}
	for name, lines := range l.written(t) {
		cluster, _, _ := strings.Cut(name, "/")
		clusters[cluster] += len(lines)
	}
	if clusters["quiet"] != 1 || clusters["loud"] < 1000 || clusters["loud"] > 5000 {
		t.Errorf("%v", clusters)
	}
}

func TestADirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []reviewlog.Options{{Dir: filepath.Join(file, "below")}, {Dir: t.TempDir(), Bytes: 1}} {
		if _, err := reviewlog.New(reviewer{}, o); err == nil {
			t.Errorf("%+v has no error", o)
		}
	}
}
