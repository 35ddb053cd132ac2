package hostsdk_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestCallsAreCountedByHookAndOutcome calls a handler for each outcome, and the denying handler twice. While a handler waits, a call of another
// session finds no slot.
func TestCallsAreCountedByHookAndOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		host, err := hostsdk.New(hostsdk.Options{
			Name: "imagepolicy", MaxOutstanding: 1, Logger: quiet(), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		},
			hostsdk.Validate("denies", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				return hostsdk.Deny("no"), nil
			}),
			hostsdk.Validate("fails", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				return nil, errors.New("registry is down")
			}),
			hostsdk.Validate("panics", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { panic("bug") }),
			hostsdk.Validate("exits", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				runtime.Goexit()
				return hostsdk.Allow(), nil
			}),
			hostsdk.Validate("waits", func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}),
			hostsdk.Validate("starts nothing", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
				return nil, hostsdk.NotStarted("the server is down", nil)
			}),
			hostsdk.Mutate("allows", allow),
		)
		if err != nil {
			t.Fatal(err)
		}
		d, other := hosttest.Start(t, host), hosttest.Start(t, host)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for _, hook := range []string{"allows", "denies", "denies", "fails", "panics", "exits", "starts nothing"} {
			if _, err := d.Ask(ctx, hook, hosttest.Create(pod)); err != nil {
				t.Fatal(err)
			}
		}
		call, err := d.Post(hosttest.Create(pod), &hostv1.HookCall{Name: "waits", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 3000})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // It has the slot.
		if v, err := other.Ask(ctx, "allows", hosttest.Create(pod)); err != nil || v.GetRefused() == nil {
			t.Errorf("verdict %v, %v", v, err)
		}
		if _, err := call.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := collect(t, reader)
		want := map[string]string{
			"portcullis.host.calls allows mutate allowed":           "1 {call}",
			"portcullis.host.calls allows mutate refused":           "1 {call}",
			"portcullis.host.calls denies validate denied":          "2 {call}",
			"portcullis.host.calls fails validate failed":           "1 {call}",
			"portcullis.host.calls panics validate panicked":        "1 {call}",
			"portcullis.host.calls exits validate panicked":         "1 {call}",
			"portcullis.host.calls waits validate cancelled":        "1 {call}",
			"portcullis.host.calls starts nothing validate refused": "1 {call}",
			"portcullis.host.handler.duration allows mutate":        "1 of 0 s",
			"portcullis.host.handler.duration denies validate":      "2 of 0 s",
			"portcullis.host.handler.duration fails validate":       "1 of 0 s",
			"portcullis.host.handler.duration panics validate":      "1 of 0 s",
			"portcullis.host.handler.duration exits validate":       "1 of 0 s",
			"portcullis.host.handler.duration waits validate":       "1 of 3 s",

			"portcullis.host.handler.duration starts nothing validate": "1 of 0 s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// collect returns the points of a host by metric, hook, stage and outcome.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	var read metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &read); err != nil {
		t.Fatal(err)
	}
	points := map[string]string{}
	point := func(m metricdata.Metrics, of attribute.Set, value string) {
		key := m.Name
		for _, name := range []attribute.Key{"portcullis.hook", "portcullis.stage", "portcullis.outcome"} {
			if value, ok := of.Value(name); ok {
				key += " " + value.AsString()
			}
		}
		points[key] = value + " " + m.Unit
	}
	for _, m := range read.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				point(m, p.Attributes, fmt.Sprint(p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				point(m, p.Attributes, fmt.Sprintf("%d of %v", p.Count, p.Sum))
			}
		}
	}
	return points
}
