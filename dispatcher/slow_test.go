package dispatcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// takes is a backend whose hooks take as long as the first label of their names says.
func takes(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	for i, c := range b.Calls {
		d, _ := time.ParseDuration(strings.Split(c.Hook.ID.Name, ".")[0])
		time.AfterFunc(d, func() {
			done(i, review.Result{
				Verdict: &admissionv1.AdmissionResponse{Allowed: true},
				Timing:  review.Timing{Queued: d / 10, Wire: d / 10, Host: d * 8 / 10, Instance: "vm-7"},
			})
		})
	}
	return func(int) {}
}

// slowly makes a dispatcher that logs reviews of 500 ms and more.
func slowly(t *testing.T, k dispatcher.Snapshots, clusters dispatcher.Clusters, slow time.Duration) (*dispatcher.Dispatcher, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: k, Clusters: clusters, Streams: start(takes), Webhooks: start(takes),
		Options: observe.Options{
			Slow: slow, Logger: slog.New(slog.NewTextHandler(log, nil)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, log
}

// slowPod is a review that has waited for a while before it is judged.
func slowPod(cluster string, waited time.Duration) *review.Request {
	r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
	r.Admission.Cluster, r.Admission.Name = cluster, "web"
	r.Received, r.Deadline = time.Now().Add(-waited), time.Now().Add(10*time.Second-waited)
	return r
}

func TestASlowReviewIsLoggedAndAnnotatedWithWhereItsTimeWent(t *testing.T) {
	for name, tt := range map[string]struct {
		hooks  []hook
		slow   time.Duration
		waited time.Duration
		change func(*review.Request)
		line   string // empty: none
		note   string
	}{
		"as long as the limit": {
			hooks: []hook{{name: "500ms.test.dev"}}, slow: 500 * time.Millisecond,
			line: `uid=u cluster=c stage=validate operation=CREATE resource=pods outcome=allowed duration=500ms timeout=10s namespace=default name=web ` +
				`hooks="[500ms.test.dev allowed 500ms (queued 50ms, wire 50ms, host 400ms) on vm-7]"`,
			note: `{"duration":"500ms","timeout":"10s","hooks":[{"configuration":"v","hook":"500ms.test.dev","outcome":"allowed","duration":"500ms",` +
				`"queued":"50ms","wire":"50ms","host":"400ms","instance":"vm-7"}]}`,
		},
		"a little less":    {hooks: []hook{{name: "499ms.test.dev"}}, slow: 500 * time.Millisecond},
		"no limit":         {hooks: []hook{{name: "9s.test.dev"}}},
		"slow at the edge": {slow: 500 * time.Millisecond, waited: time.Second, line: "duration=1s timeout=10s namespace=default name=web edge=1s\n", note: `"edge":"1s"`},
		"a name that the API server completes": {
			slow: 500 * time.Millisecond, waited: time.Second, line: "namespace=default name=web-6f-* edge=1s\n",
			change: func(r *review.Request) {
				r.Admission.Name, r.Admission.Object = "", &admissionv1.Object{Raw: []byte(`{"metadata":{"generateName":"web-6f-"}}`)}
			},
			note: `"edge":"1s"`,
		},
		"the name of a Secret that the API server completes": {
			slow: 500 * time.Millisecond, waited: time.Second, line: "namespace=default edge=1s\n",
			change: func(r *review.Request) {
				r.Admission.Resource = &admissionv1.GroupVersionResource{Version: "v1", Resource: "secrets"}
				r.Admission.Name, r.Admission.Object = "", &admissionv1.Object{Raw: []byte(`{"metadata":{"generateName":"hunter2-"}}`)}
			},
			note: `"edge":"1s"`,
		},
		"the name of a Secret": {
			slow: 500 * time.Millisecond, waited: time.Second, line: "namespace=default edge=1s\n",
			change: func(r *review.Request) {
				r.Admission.Resource = &admissionv1.GroupVersionResource{Version: "v1", Resource: "secrets"}
			},
			note: `"edge":"1s"`,
		},
		"a timeout": {
			hooks: []hook{{name: "3s.test.dev", time: time.Second}}, slow: 500 * time.Millisecond,
			line: `outcome=failed duration=1s`, note: `"outcome":"failed","duration":"1s"`,
		},
		"more hooks than are named": {
			hooks: []hook{{name: "1s.test.dev"}, {name: "5s.test.dev"}, {name: "2s.test.dev"}, {name: "3s.test.dev"}}, slow: 500 * time.Millisecond,
			line: `hooks="[5s.test.dev allowed 5s (queued 500ms, wire 500ms, host 4s) on vm-7 3s.test.dev`, note: `"more":1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := static{snapshot: compile(t, tt.hooks, nil)}
				d, log := slowly(t, k, k, tt.slow)
				r := slowPod("c", tt.waited)
				if tt.change != nil {
					tt.change(r)
				}
				a, err := d.Review(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(10 * time.Second)
				got := ""
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "the review was slow") {
						got += line
					}
				}
				if (got != "") != (tt.line != "") || !strings.Contains(got, tt.line) {
					t.Errorf("logged %q, want %q", got, tt.line)
				}
				note := a.Response.GetAuditAnnotations()["slow.validate"]
				if (note != "") != (tt.note != "") || !strings.Contains(note, tt.note) || note != "" && !json.Valid([]byte(note)) {
					t.Errorf("annotation %s, want %s", note, tt.note)
				}
			})
		})
	}
}

// One cluster that is slow at each review has a line in 10 s, and does not hide another one.
func TestSlowReviewsOfOneClusterDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := static{snapshot: compile(t, []hook{{name: "1s.test.dev"}}, nil)}
		d, log := slowly(t, k, k, time.Second)
		for _, cluster := range []string{"a", "a", "b", "a", "b", "a", "a", "a", "a", "a", "a", "a"} {
			if _, err := d.Review(t.Context(), slowPod(cluster, 0)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for line := range strings.Lines(log.String()) {
			cluster, more := "", 0
			for word := range strings.FieldsSeq(line) {
				if name, ok := strings.CutPrefix(word, "cluster="); ok {
					cluster = name
				}
				_, _ = fmt.Sscanf(word, "more=%d", &more)
			}
			got = append(got, fmt.Sprint(cluster, more))
		}
		if diff := cmp.Diff([]string{"a0", "b0", "a7"}, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

// lateSnapshots are a configuration that does not become fresh in time.
type lateSnapshots struct{ static }

// Acquire implements [dispatcher.Snapshots].
func (lateSnapshots) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	<-time.After(2 * time.Second)
	return nil, "", errors.New("too old")
}

func TestARefusedReviewThatWaitedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := slowly(t, lateSnapshots{}, static{}, time.Second)
		if _, err := d.Review(t.Context(), slowPod("c", 0)); err == nil {
			t.Fatal("it is judged")
		}
		if !strings.Contains(log.String(), "outcome=refused duration=2s timeout=10s namespace=default name=web held=2s\n") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestTheAnnotationOfASlowReviewIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hooks []hook
		for i := range 100 {
			hooks = append(hooks, hook{name: fmt.Sprintf("1s.%s%d.test.dev", strings.Repeat("x", 240), i)})
		}
		snapshot := compile(t, hooks, nil)
		k := static{snapshot: snapshot}
		d, _ := slowly(t, k, k, time.Second)
		a, err := d.Review(t.Context(), slowPod("c", 0))
		if err != nil {
			t.Fatal(err)
		}
		var said struct {
			Hooks []any `json:"hooks"`
			More  int   `json:"more"`
		}
		note := a.Response.GetAuditAnnotations()[observe.AuditSlow+"validate"]
		if err := json.Unmarshal([]byte(note), &said); err != nil || len(note) > 2<<10 || len(said.Hooks) == 0 || len(said.Hooks)+said.More != 100 {
			t.Errorf("%d bytes, %d hooks and %d more: %v", len(note), len(said.Hooks), said.More, err)
		}
	})
}

// staging is a stager whose controllers act after a while.
type staging struct{ wait time.Duration }

func (s staging) Stage(*review.Request) (dispatcher.Hold, error) { return s, nil }

func (s staging) Start(
	_ context.Context, _ []review.Call, _ []byte, _ []string, _ dispatcher.Ask, done func(int, review.Result),
) (cancel func(int)) {
	time.AfterFunc(s.wait, func() {
		done(0, review.Result{
			Verdict: &admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/spec","value":{}}]`)},
			Timing:  review.Timing{Queued: 10 * time.Millisecond, Host: s.wait},
		})
	})
	return func(int) {}
}

func (staging) Release(context.Context) {}

// TestASlowReviewSaysThatAControllerWasWaitedFor: an initializer is not taken for a mutating hook, nor its controller for a host.
func TestASlowReviewSaysThatAControllerWasWaitedFor(t *testing.T) {
	in := input(nil, []hook{{name: "a.test.dev"}})
	in.Objects[len(in.Objects)-1].Initializes = true
	for i := range in.Routes {
		in.Routes[i].Route.Stream = false
	}
	snapshot, findings := match.Compile(in)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	synctest.Test(t, func(t *testing.T) {
		log, spans := &bytes.Buffer{}, tracetest.NewSpanRecorder()
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: start(takes), Webhooks: start(takes),
			Options: observe.Options{
				TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)), Slow: time.Second,
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			},
			Stager: staging{2 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := podReview(admissionv1.Stage_STAGE_MUTATE, `{"kind":"Pod","apiVersion":"v1"}`)
		r.Deadline = time.Now().Add(10 * time.Second)
		answer, err := d.Review(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if want := `hooks="[initialize a.test.dev patched 2s (queued 10ms, controller 2s)]"`; !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log)
		}
		const want = `"hook":"a.test.dev","stage":"initialize","outcome":"patched","duration":"2s","queued":"10ms","controller":"2s"}`
		if note := answer.Response.GetAuditAnnotations()["slow.mutate"]; !strings.Contains(note, want) {
			t.Errorf("no %s in %s", want, note)
		}
		call := spans.Ended()[0]
		var told []string
		for _, a := range call.Attributes() {
			told = append(told, fmt.Sprintf("%s=%s", a.Key, a.Value.Emit()))
		}
		for _, want := range []string{"portcullis.stage=initialize", "portcullis.queue.duration=0.01", "portcullis.controller.duration=2"} {
			if !slices.Contains(told, want) {
				t.Errorf("%s has no %s: %v", call.Name(), want, told)
			}
		}
		if events := call.Events(); len(events) != 1 || events[0].Name != "staged" || events[0].Time.Sub(call.StartTime()) != 10*time.Millisecond {
			t.Errorf("events %v", events)
		}
		const mutated = `{"configuration":"m","webhook":"a.test.dev","stage":"initialize","mutated":true}`
		if got := answer.Response.GetAuditAnnotations()["mutation.round_0_index_0"]; got != mutated {
			t.Errorf("%s, want %s", got, mutated)
		}
	})
}
