package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a call set with one call of hook "h".
func one() *review.CallSet {
	return &review.CallSet{Calls: []review.Call{{
		Hook: &match.Hook{ID: match.HookID{Name: "h"}}, Deadline: time.Now().Add(time.Second),
	}}}
}

func TestWhatAHandlerDoes(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler inprocess.Handler
		want    string
	}{
		{"it allows", func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}, "allowed"},
		{"it fails", func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, errors.New("no database")
		}, "handler"},
		{"it says nothing", func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, nil //nolint:nilnil // the tested case
		}, "bad_answer"},
		{"it panics", func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			panic("hunter2")
		}, "panic"},
		{"it runs into its deadline", func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "handler"},
		{"there is none", nil, "unavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				b := inprocess.New(map[string]inprocess.Handler{"h": test.handler})
				b.Logger = slog.New(slog.NewTextHandler(&log, nil))
				got := make(chan review.Result, 1)
				b.Start(t.Context(), one(), func(_ int, r review.Result) { got <- r })
				r, how := <-got, "allowed"
				if r.Failure != nil {
					how = r.Failure.Kind.String()
				}
				if how != test.want {
					t.Errorf("got %s (%v), want %s", how, r.Failure, test.want)
				}
				if panicked := test.want == "panic"; panicked != strings.Contains(log.String(), "hunter2") {
					t.Errorf("logged: %s", log.String())
				} else if panicked && (strings.Contains(r.Failure.Error(), "hunter2") || strings.Contains(r.Failure.Error(), "goroutine")) {
					t.Errorf("the answer would say %v", r.Failure)
				}
				b.Wait()
			})
		})
	}
}

func TestACancelledCallEndsAtOnceAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ends := make(chan struct{}), 0
		b := inprocess.New(map[string]inprocess.Handler{
			"h": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				<-release // it does not listen
				return &admissionv1.AdmissionResponse{Allowed: true}, nil
			},
		})
		cancel := b.Start(t.Context(), one(), func(_ int, r review.Result) {
			ends++
			if r.Failure == nil || r.Failure.Kind != review.FailureCancelled {
				t.Errorf("got %+v", r)
			}
		})
		cancel(0)
		if ends != 1 {
			t.Errorf("ended %d times", ends)
		}
		close(release)
		b.Wait()
		cancel(0)
		if ends != 1 {
			t.Errorf("ended %d times", ends)
		}
	})
}
