package replay_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/replay"
)

// event is an audit event about a Deployment, with the fields at the end in the place of the usual ones.
func event(verb, replicas, more string) string {
	object := "null"
	if replicas != "" {
		object = fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":%s}}`, replicas)
	}
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","stageTimestamp":"2026-11-28T10:00:00.500000Z","requestURI":"/x",` +
		`"user":{"username":"jane","groups":["dev"]},"responseStatus":{"code":200},` +
		`"objectRef":{"resource":"deployments","apiGroup":"apps","apiVersion":"v1","namespace":"shop","name":"web"},` +
		`"verb":"` + verb + `","requestObject":` + object + more + `}`
}

// read reads a log, and returns a line for each request.
func read(t *testing.T, l *replay.Log, text string) (got []string) {
	t.Helper()
	l.Each = func(e *replay.Entry) error {
		if w := e.Write; w != nil {
			replicas := func(object []byte) string {
				_, after, _ := strings.Cut(string(object), `"replicas":`)
				return strings.TrimRight(after, "}")
			}
			got = append(got, fmt.Sprintf("%d %s %s/%s by %s: %s->%s denied=%t dry=%t without=%t",
				e.Line, w.Operation, w.Namespace, w.Resource, w.User, replicas(w.OldObject), replicas(w.Object), e.Denied, w.DryRun, e.WithoutOld))
			return nil
		}
		got = append(got, fmt.Sprintf("%d %s %s in %s denied=%t", e.Line, e.Request.GetOperation(), e.Request.GetName(), e.Request.GetCluster(), e.Denied))
		return nil
	}
	if err := l.Read(t.Context(), "-", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAuditEventsBecomeRequests(t *testing.T) {
	const denied = `,"responseStatus":{"code":403,"message":"admission webhook \"x\" denied the request: no"}`
	for name, of := range map[string]struct {
		lines []string
		want  []string
		left  map[string]int
	}{
		"an update has the object of the latest write": {
			lines: []string{event("create", "1", ""), event("update", "2", ""), event("delete", "", "")},
			want: []string{
				"1 CREATE shop/apps/v1/deployments by jane: ->1 denied=false dry=false without=false",
				"2 UPDATE shop/apps/v1/deployments by jane: 1->2 denied=false dry=false without=false",
				"3 DELETE shop/apps/v1/deployments by jane: 2-> denied=false dry=false without=false",
			},
		},
		"the stored object counts": {
			lines: []string{event("create", "1", `,"responseObject":{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":5}}`), event("update", "2", "")},
			want: []string{
				"1 CREATE shop/apps/v1/deployments by jane: ->1 denied=false dry=false without=false",
				"2 UPDATE shop/apps/v1/deployments by jane: 5->2 denied=false dry=false without=false",
			},
		},
		"an update without a write before": {
			lines: []string{event("update", "2", "")},
			want:  []string{"1 UPDATE shop/apps/v1/deployments by jane: 2->2 denied=false dry=false without=true"},
		},
		"a patch has the stored object": {
			lines: []string{event("patch", "7", `,"responseObject":{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3}}`), event("patch", "7", "")},
			want:  []string{"1 UPDATE shop/apps/v1/deployments by jane: 3->3 denied=false dry=false without=true"},
			left:  map[string]int{replay.LeftWithout: 1},
		},
		"an object of another kind is not the object before": {
			lines: []string{
				event("create", "1", ""), event("update", "2", `,"requestObject":{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":2}}`),
				event("update", "3", `,"requestObject":{"apiVersion":"apps/v1beta1","kind":"Deployment","spec":{"replicas":3}}`),
			},
			want: []string{
				"1 CREATE shop/apps/v1/deployments by jane: ->1 denied=false dry=false without=false",
				"2 UPDATE shop/apps/v1/deployments by jane: 2->2 denied=false dry=false without=true",
				"3 UPDATE shop/apps/v1/deployments by jane: 3->3 denied=false dry=false without=true",
			},
		},
		"a refused write and a dry run store nothing": {
			lines: []string{event("create", "1", denied), event("create", "2", `,"requestURI":"/x?dryRun=All"`), event("update", "3", "")},
			want: []string{
				"1 CREATE shop/apps/v1/deployments by jane: ->1 denied=true dry=false without=false",
				"2 CREATE shop/apps/v1/deployments by jane: ->2 denied=false dry=true without=false",
				"3 UPDATE shop/apps/v1/deployments by jane: 3->3 denied=false dry=false without=true",
			},
		},
		"an impersonated user makes the request": {
			lines: []string{event("create", "1", `,"impersonatedUser":{"username":"bob"}`)},
			want:  []string{"1 CREATE shop/apps/v1/deployments by bob: ->1 denied=false dry=false without=false"},
		},
		"a list of events": {
			lines: []string{`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + event("create", "1", "") + "," + event("get", "", "") + "]}"},
			want:  []string{"1 CREATE shop/apps/v1/deployments by jane: ->1 denied=false dry=false without=false"},
			left:  map[string]int{replay.LeftRead: 1},
		},
		"lines that are left out": {
			lines: []string{
				event("get", "", ""), event("create", "1", `,"stage":"RequestReceived"`), event("deletecollection", "", ""), event("delete", "", ""),
				event("create", "", ""), event("create", "1", `,"responseStatus":{"code":409,"message":"already exists"}`),
				event("create", "1", `,"objectRef":{"resource":"secrets","apiGroup":"","name":"s"}`), event("create", "", `,"objectRef":{"resource":"pods","subresource":"exec"}`),
				"no JSON", `{"kind":"Pod"}`, "", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, strings.Repeat("x", replay.MaxLineBytes+1),
			},
			left: map[string]int{
				replay.LeftRead: 1, replay.LeftUnfinished: 1, replay.LeftCollection: 3, replay.LeftWithout: 1, replay.LeftRefused: 1, replay.LeftSecret: 1,
				replay.LeftUnreadable: 3, replay.LeftTooLong: 1,
			},
		},
		"reviews": {
			lines: []string{
				`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","cluster":"prod","request":{"uid":"1","name":"a","operation":"CREATE"}}`,
				`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"2","name":"b","operation":"DELETE"},"response":{"uid":"2","allowed":false}}`,
			},
			want: []string{"1 CREATE a in prod denied=false", "2 DELETE b in trial denied=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &replay.Log{Cluster: "trial"}
			if diff := cmp.Diff(of.want, read(t, l, strings.Join(of.lines, "\n"))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(of.left, l.Left); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRequestsOfAnotherTimeAreLeftOut(t *testing.T) {
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	for name, of := range map[string]struct {
		log  replay.Log
		want int
	}{
		"no bound": {replay.Log{}, 1}, "since before": {replay.Log{Since: at}, 1}, "since after": {replay.Log{Since: at.Add(time.Second)}, 0},
		"until before": {replay.Log{Until: at}, 0}, "until after": {replay.Log{Until: at.Add(time.Second)}, 1},
	} {
		if got := read(t, &of.log, event("create", "1", "")); len(got) != of.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLogsAreFoundAndUnpacked(t *testing.T) {
	dir := t.TempDir()
	packed := &bytes.Buffer{}
	w := gzip.NewWriter(packed)
	if _, err := w.Write([]byte(event("create", "1", "") + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"2.log": event("update", "2", ""), "1.log.gz": packed.String(), "notes.txt": "none", "3.gz": "none"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := replay.Files(dir, "-")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(dir, "1.log.gz"), filepath.Join(dir, "2.log"), "-"}, files); diff != "" {
		t.Fatal(diff)
	}
	l := &replay.Log{}
	n := 0
	l.Each = func(*replay.Entry) error { n++; return nil }
	for _, file := range files[:2] {
		if err := l.Read(t.Context(), file, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 || l.WithoutOld != 0 {
		t.Errorf("%d requests, %d without the object before", n, l.WithoutOld)
	}
	if _, err := replay.Files(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a missing file has no error")
	}
	if err := l.Read(t.Context(), filepath.Join(dir, "3.gz"), nil); err == nil || !strings.Contains(err.Error(), "3.gz") {
		t.Errorf("%v", err)
	}
}
