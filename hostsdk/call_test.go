package hostsdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestTheHandlersSpanIsPartOfTheReviewsTrace: one trace from the API server's call to the handler.
func TestTheHandlersSpanIsPartOfTheReviewsTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	var inHandler trace.SpanContext
	var traceparent string
	host, err := hostsdk.New(hostsdk.Options{
		Name:           "imagepolicy",
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)),
		Logger:         quiet(),
	},
		hostsdk.Validate("h", func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			inHandler, traceparent = trace.SpanContextFromContext(ctx), r.Traceparent()
			return hostsdk.Allow(), nil
		}),
		hostsdk.Validate("broken", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return nil, errors.New("secret")
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	if _, err := d.Ask(t.Context(), "broken", hosttest.Create(pod)); err != nil {
		t.Fatal(err)
	}
	err = d.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: &hostv1.Review{
		CallId:      7,
		Hooks:       []*hostv1.HookCall{{Name: "h", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 60_000}},
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Tracestate:  "vendor=value",
		Request:     &admissionv1.AdmissionRequest{Cluster: "prod-1"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(recorder.Ended()) == 2 })
	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range recorder.Ended() {
		spans[spanAttribute(span, "portcullis.hook")] = span
	}
	span := spans["h"]
	if span == nil || span.Name() != "handle h" || span.SpanKind() != trace.SpanKindServer {
		t.Fatalf("span %v", span)
	}
	if got := span.Parent(); got.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" || got.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("parent %v", got)
	}
	if got := span.Parent().TraceState().String(); got != "vendor=value" {
		t.Errorf("trace state %q", got)
	}
	if traceparent != "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" {
		t.Errorf("traceparent %q", traceparent)
	}
	if inHandler.SpanID() != span.SpanContext().SpanID() {
		t.Error("the handler's context does not carry the span")
	}
	for key, want := range map[string]string{
		"portcullis.stage": "validate", "k8s.cluster.name": "prod-1", "portcullis.call": "7", "portcullis.allowed": "true",
	} {
		if got := spanAttribute(span, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if events := span.Events(); len(events) != 1 || events[0].Name != "queued" || events[0].Time.Before(span.StartTime()) {
		t.Errorf("the span from %v has the events %v, want the end of the queue", span.StartTime(), events)
	}
	if status := spans["broken"].Status(); status.Description != "handler failed" {
		t.Errorf("status of the failed span: %v", status)
	}
}

// TestEachHandlersSpanIsTheChildOfItsCall: a frame has one traceparent but may ask several hooks.
func TestEachHandlersSpanIsTheChildOfItsCall(t *testing.T) {
	for name, tc := range map[string]struct {
		spanID []byte
		parent string
	}{
		"the span of the call":                     {[]byte{1, 2, 3, 4, 5, 6, 7, 8}, "0102030405060708"},
		"the frame's trace without a call's span":  {nil, "00f067aa0ba902b7"},
		"the frame's trace with a bad call's span": {[]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, "00f067aa0ba902b7"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			host, err := hostsdk.New(hostsdk.Options{
				Name: "imagepolicy", TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), Logger: quiet(),
			}, hostsdk.Validate("h", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
			if err != nil {
				t.Fatal(err)
			}
			d := hosttest.Start(t, host)
			err = d.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: &hostv1.Review{
				CallId:      7,
				Hooks:       []*hostv1.HookCall{{Name: "h", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 60_000, SpanId: tc.spanID}},
				Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				Request:     &admissionv1.AdmissionRequest{},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return len(recorder.Ended()) == 1 })
			parent := recorder.Ended()[0].Parent()
			if parent.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" || parent.SpanID().String() != tc.parent || !parent.IsSampled() {
				t.Errorf("parent %v-%v, sampled %v", parent.TraceID(), parent.SpanID(), parent.IsSampled())
			}
		})
	}
}

func spanAttribute(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == key {
			return a.Value.Emit()
		}
	}
	return ""
}

// waitFor waits until something holds that happens in another goroutine.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it did not happen in time")
		}
	}
}

// TestFailuresAreLoggedHere: the operator of the host reads details that the mesh does not get, but not more often than
// is good.
func TestFailuresAreLoggedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		host, err := hostsdk.New(hostsdk.Options{Name: "imagepolicy", Logger: slog.New(slog.NewTextHandler(&log, nil))},
			hostsdk.Validate("fails", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				return nil, hostsdk.NewError("registry is down", errors.New("secret cause"))
			}),
			hostsdk.Validate("panics", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				panic("secret panic")
			}),
			hostsdk.Validate("denies", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				return hostsdk.Deny("no").WithCode(200), nil
			}),
		)
		if err != nil {
			t.Fatal(err)
		}
		d := hosttest.Start(t, host)
		for range 10 {
			if v, err := d.Ask(t.Context(), "denies", hosttest.Create(pod)); err != nil || v.GetResponse().GetStatus().GetCode() != 403 {
				t.Errorf("verdict %v, %v", v, err)
			}
			v, err := d.Ask(t.Context(), "fails", hosttest.Create(pod))
			if err != nil || v.GetError().GetMessage() != "registry is down" {
				t.Errorf("verdict %v, %v", v, err)
			}
		}
		if got := strings.Count(log.String(), "secret cause"); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, log.String())
		}
		if got := strings.Count(log.String(), `msg="a part of the verdict cannot be sent" hook=denies`); got != 1 || !strings.Contains(log.String(), "code 200") {
			t.Errorf("the code was logged %d times, want once:\n%s", got, log.String())
		}
		time.Sleep(time.Second) //nolint:forbidigo // of the fake clock
		for _, hook := range []string{"fails", "panics"} {
			if _, err := d.Ask(t.Context(), hook, hosttest.Create(pod)); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{
			"hook=fails", "cluster=hosttest", "uid=705ab4f5", "unlogged=9", "hook=panics", "secret panic", "stack=", "call_test.go",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log.String())
			}
		}
	})
}

// TestADispatcherThatDoesNotReadIsNotReadFrom: its verdicts wait in a bounded queue, and then it gets no more.
func TestADispatcherThatDoesNotReadIsNotReadFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := hostsdk.New(hostsdk.Options{Name: "imagepolicy", Logger: quiet()}, hostsdk.Validate("h", allow))
		if err != nil {
			t.Fatal(err)
		}
		peer := hosttest.Pipe()
		done := make(chan error, 1)
		go func() { done <- host.Serve(t.Context(), peer.Open) }()
		if _, err := hosttest.Accept(peer, &hostv1.Welcome{SilenceMs: 5000}); err != nil {
			t.Fatal(err)
		}
		sent := make(chan int, 1)
		go func() {
			n := 0
			for peer.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: 1}}}) == nil {
				n++
			}
			sent <- n
		}()
		// The host stops reading, and takes the silence of the stream for a lost dispatcher.
		if err := <-done; err == nil || !strings.Contains(err.Error(), "fell silent") {
			t.Errorf("the session ended with %v", err)
		}
		if n := <-sent; n < 1024 || n > 4096 {
			t.Errorf("the host took %d frames of a dispatcher that does not read", n)
		}
	})
}

// TestAProbeThatBreaksIsNotReady covers the failures of an author's probe.
func TestAProbeThatBreaksIsNotReady(t *testing.T) {
	host, err := hostsdk.New(hostsdk.Options{Name: "imagepolicy", Logger: quiet()},
		hostsdk.Validate("panics", allow, hostsdk.ReadyWhen(func(context.Context) error { panic("secret") })),
		hostsdk.Validate("fails", allow, hostsdk.ReadyWhen(func(context.Context) error { return errors.New("secret") })),
		hostsdk.Validate("ready", allow, hostsdk.ReadyWhen(func(context.Context) error { return nil })),
		hostsdk.Mutate("ready", allow, hostsdk.ReadyWhen(func(context.Context) error { return nil })),
		hostsdk.Initialize("initializer fails", allow, hostsdk.ReadyWhen(func(context.Context) error { return errors.New("secret") })),
		hostsdk.Validate("initializer fails", allow),
		hostsdk.Initialize("initializer is ready", allow),
	)
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	for hook, want := range map[string]string{
		"panics": "the probe panicked", "fails": "the hook is not ready", "ready": "",
		"initializer fails": "the hook is not ready", "initializer is ready": "",
	} {
		result, err := d.Probe(t.Context(), hook)
		if err != nil || result.GetReady() != (want == "") || result.GetMessage() != want {
			t.Errorf("%s: %v, %v", hook, result, err)
		}
	}
}

// TestAHookIsCalledForTheStagesThatItWasRegisteredFor: three hooks of one name are three hooks, and a stage of the future is none.
func TestAHookIsCalledForTheStagesThatItWasRegisteredFor(t *testing.T) {
	answer := func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		response := hostsdk.Allow()
		if r.Stage != hostsdk.StageValidate {
			response = hostsdk.Patch([]byte(`[]`))
		}
		return response.WithWarnings("STAGE_" + strings.ToUpper(string(r.Stage))), nil
	}
	host, err := hostsdk.New(hostsdk.Options{Name: "sidecar", Logger: quiet()},
		hostsdk.Validate("all", answer), hostsdk.Mutate("all", answer), hostsdk.Initialize("all", answer), hostsdk.Initialize("one", answer))
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	stages := []admissionv1.Stage{
		admissionv1.Stage_STAGE_INITIALIZE, admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_UNSPECIFIED, 77, -1,
	}
	var calls []*hostv1.HookCall
	for _, hook := range []string{"all", "one"} {
		for _, stage := range stages {
			calls = append(calls, &hostv1.HookCall{Name: hook, Stage: stage, RemainingMs: 10_000})
		}
	}
	call, err := d.Post(hosttest.Create(pod), calls...)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := call.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		called := i < 3 || i == len(stages)
		warnings := v.GetResponse().GetWarnings()
		if called && !slices.Equal(warnings, []string{calls[i].GetStage().String()}) || !called && v.GetRefused().GetReason() != "unknown hook" {
			t.Errorf("%v: %v", calls[i], v)
		}
	}
	if response := d.Review(t.Context(), "one", hosttest.Create(pod)); string(response.Patch) != "[]" {
		t.Errorf("response %v", response)
	}
}

// TestAHandlerThatHasDoneNothingSaysSo: another replica may have the call, and the cause stays here.
func TestAHandlerThatHasDoneNothingSaysSo(t *testing.T) {
	var log bytes.Buffer
	host, err := hostsdk.New(hostsdk.Options{Name: "imagepolicy", Logger: slog.New(slog.NewTextHandler(&log, nil))},
		hostsdk.Validate("down", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return nil, fmt.Errorf("wrapped: %w", hostsdk.NotStarted("the server is down", errors.New("secret cause")))
		}))
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	v, err := d.Ask(t.Context(), "down", hosttest.Create(pod))
	if err != nil || v.GetRefused().GetReason() != "the server is down" {
		t.Errorf("verdict %v, %v", v, err)
	}
	if !strings.Contains(log.String(), "secret cause") {
		t.Errorf("the log lacks the cause: %s", &log)
	}
}

// TestADenialThatIsReturnedAsAnErrorDenies covers all stages, and other errors in the same chain.
func TestADenialThatIsReturnedAsAnErrorDenies(t *testing.T) {
	denial := hostsdk.Deny("no").WithCode(422).WithReason("Invalid").WithCause("spec", "bad").WithWarnings("w").WithAudit("k", "v")
	tests := map[string]struct {
		err     error
		code    int32
		message string
	}{
		"plain":                {hostsdk.Denied("no"), 403, "no"},
		"wrapped":              {fmt.Errorf("wrapped: %w", hostsdk.Denied("no")), 403, "no"},
		"decorated":            {&hostsdk.DeniedError{Response: denial}, 422, "no"},
		"behind an Error":      {hostsdk.NewError("failed", hostsdk.Denied("no")), 403, "no"},
		"beside others":        {errors.Join(hostsdk.NewError("failed", nil), hostsdk.NotStarted("idle", hostsdk.Denied("no"))), 403, "no"},
		"without a response":   {&hostsdk.DeniedError{}, 403, ""},
		"a nil pointer":        {(*hostsdk.DeniedError)(nil), 403, ""},
		"response that allows": {&hostsdk.DeniedError{Response: &hostsdk.Response{Allowed: true, Message: "no", Patch: []byte("[]")}}, 403, "no"},
		"allowing Verbatim":    {&hostsdk.DeniedError{Response: hostsdk.Verbatim(&admissionv1.AdmissionResponse{Allowed: true})}, 403, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			handler := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), tt.err }
			host, err := hostsdk.New(hostsdk.Options{Name: "denies", Logger: quiet()},
				hostsdk.Validate("validate", handler),
				hostsdk.Mutate("mutate", handler),
				hostsdk.Initialize("initialize", handler),
			)
			if err != nil {
				t.Fatal(err)
			}
			d := hosttest.Start(t, host)
			for _, hook := range []string{"validate", "mutate", "initialize"} {
				response := d.Review(t.Context(), hook, hosttest.Create(pod))
				if response.Allowed || response.Code != tt.code || response.Message != tt.message {
					t.Errorf("%s: %v", hook, response)
				}
				if tt.err.Error() == "" {
					t.Error("the error has no text")
				}
			}
		})
	}
}

// TestADenialCountsAfterTheEnd of the context of its handler.
func TestADenialCountsAfterTheEnd(t *testing.T) {
	started := make(chan struct{}, 1)
	host, err := hostsdk.New(hostsdk.Options{Name: "denies", Logger: quiet()},
		hostsdk.Validate("late", func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			started <- struct{}{}
			<-ctx.Done()
			return nil, errors.Join(ctx.Err(), hostsdk.Denied("no"))
		}))
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // Ends with the handler's start.
		<-started
		cancel()
	}()
	if response := d.Review(ctx, "late", hosttest.Create(pod)); response.Allowed || response.Message != "no" {
		t.Errorf("response %v", response)
	}
}

// badError is an error whose methods panic.
type badError struct{}

// Error implements error.
func (*badError) Error() string { panic("no text") }

// Unwrap implements the chain of errors.
func (*badError) Unwrap() error { panic("no cause") }

// textlessError is an error whose Error method panics.
type textlessError struct{}

// Error implements error.
func (*textlessError) Error() string { panic("no text") }

// TestErrorsThatAreBrokenAreContained: they cost their own call, also where a span records them.
func TestErrorsThatAreBrokenAreContained(t *testing.T) {
	for name, broken := range map[string]error{
		"methods that panic": &badError{}, "a text that panics": &textlessError{},
		"a nil Error": (*hostsdk.Error)(nil), "a wrapped nil Error": fmt.Errorf("%w", (*hostsdk.Error)(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			spans := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder()))
			host, err := hostsdk.New(hostsdk.Options{Name: "broken", TracerProvider: spans, Logger: slog.New(slog.DiscardHandler)},
				hostsdk.Validate("h", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return nil, broken },
					hostsdk.ReadyWhen(func(context.Context) error { return broken })))
			if err != nil {
				t.Fatal(err)
			}
			d := hosttest.Start(t, host)
			if v, err := d.Ask(t.Context(), "h", hosttest.Create(pod)); err != nil || v.GetError() == nil {
				t.Errorf("verdict %v, %v", v, err)
			}
			if result, err := d.Probe(t.Context(), "h"); err != nil || result.GetReady() {
				t.Errorf("probe %v, %v", result, err)
			}
		})
	}
}
