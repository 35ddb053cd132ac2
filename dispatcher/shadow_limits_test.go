package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestCallsInShadowAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		for range dispatcher.MaxShadowCalls {
			allowed(t, d, validate)
		}
		expectCounts(t, metrics, map[string]float64{})
		allowed(t, d, validate)
		expectCounts(t, metrics, map[string]float64{"dropped": 1})
		if n := len(backend.inShadow()); n != dispatcher.MaxShadowCalls {
			t.Errorf("%d calls, want %d", n, dispatcher.MaxShadowCalls)
		}
		backend.inShadow()[0].done(0, yes())
		synctest.Wait()
		allowed(t, d, validate)
		allowed(t, d, validate)
		expectCounts(t, metrics, map[string]float64{"dropped": 2, "allowed": 1})
		<-time.After(time.Minute)
		synctest.Wait()
		expectCounts(t, metrics, map[string]float64{"dropped": 2, "allowed": 1, "failed": dispatcher.MaxShadowCalls})
	})
}

// TestACallInShadowOfAnotherClusterFindsRoom while one cluster has all that it may have.
func TestACallInShadowOfAnotherClusterFindsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		of := func(cluster string, reviews int) {
			for range reviews {
				r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
				r.Admission.Cluster = cluster
				if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
					t.Fatalf("got %v, %v", a.Response, err)
				}
			}
		}
		of("flood", 2*dispatcher.MaxShadowCalls)
		expectCounts(t, metrics, map[string]float64{"dropped": dispatcher.MaxShadowCalls})
		of("other", dispatcher.MaxShadowCalls/2)
		of("third", dispatcher.MaxShadowCalls/4)
		expectCounts(t, metrics, map[string]float64{"dropped": dispatcher.MaxShadowCalls})
		<-time.After(time.Minute)
		synctest.Wait()
	})
}

func TestTheBytesOfCallsInShadowAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, err := memory.New(memory.Options{Total: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		const size = dispatcher.MaxShadowBytes / 4
		judge := func(object, booked int) {
			r := podReview(validate, `"`+strings.Repeat("x", object-2)+`"`)
			r.Explain = false
			if r.Reservation, err = ledger.Reserve("c", int64(booked)); err != nil {
				t.Fatal(err)
			}
			defer r.Reservation.Release()
			defer synctest.Wait()
			if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
				t.Errorf("got %v, %v", a.Response, err)
			}
		}
		judge(2, 2*size)
		judge(2, size)
		judge(size, size)
		judge(2, 2)
		expectCounts(t, metrics, map[string]float64{"dropped": 1})
		if n := ledger.InUse(); n != 4*size {
			t.Errorf("%d bytes are in use while calls are under way, want %d", n, 4*size)
		}
		backend.inShadow()[0].done(0, yes())
		synctest.Wait()
		if n := ledger.InUse(); n != 2*size {
			t.Errorf("%d bytes are in use when one has ended, want %d", n, 2*size)
		}
		judge(2*size, 2)
		judge(2, 2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		d.Close(ended)
		expectCounts(t, metrics, map[string]float64{"dropped": 5, "allowed": 1})
		if n := ledger.InUse(); n != 0 {
			t.Errorf("%d bytes are in use in the end", n)
		}
	})
}

// busy are replicas that have no room but for calls that decide.
type busy struct{ deaf }

func (*busy) Spare(*match.Hook, review.Mode, string) bool { return false }

func TestAHookInShadowIsNotAskedWhereItWouldKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, metrics := &busy{}, prometheus.NewRegistry()
		k := static{snapshot: oneEach(t)}
		d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend, Capacity: backend,
			Options: observe.Options{
				Metrics: metrics,
			}})
		if err != nil {
			t.Fatal(err)
		}
		allowed(t, d, validate)
		allowed(t, d, mutate)
		if calls := backend.inShadow(); len(calls) > 0 {
			t.Errorf("%d calls", len(calls))
		}
		expectCounts(t, metrics, map[string]float64{"dropped": 2})
	})
}

// A call without room is dropped. Other failures count as failed.
func TestACallInShadowThatNobodyHasRoomForIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		for _, f := range []review.Failure{
			{Kind: review.FailureOverload, Err: errors.New("no room"), NotStarted: true},
			{Kind: review.FailureOverload, Err: errors.New("its verdict finds no room")},
			{Kind: review.FailureUnavailable, Err: errors.New("nobody is there"), NotStarted: true},
		} {
			allowed(t, d, validate)
			calls := backend.inShadow()
			calls[len(calls)-1].done(0, review.Result{Failure: &f})
			synctest.Wait()
		}
		expectCounts(t, metrics, map[string]float64{"dropped": 1, "failed": 2})
	})
}

// TestCloseWaitsForCallsInShadow has a call that ends and a call that does not.
func TestCloseWaitsForCallsInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		allowed(t, d, validate)
		allowed(t, d, mutate)
		time.AfterFunc(time.Second, func() { backend.inShadow()[0].done(0, yes()) })
		begun := time.Now()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			d.Close(ctx)
			cancel()
			if took := time.Since(begun); took != 2*time.Second {
				t.Errorf("closed after %s", took)
			}
		}
		expectCounts(t, metrics, map[string]float64{"allowed": 1, "dropped": 1})
		if calls := backend.inShadow(); calls[0].cancelled[0] || !calls[1].cancelled[0] {
			t.Error("want the call cancelled that has not ended, and no other")
		}
		allowed(t, d, validate)
		expectCounts(t, metrics, map[string]float64{"allowed": 1, "dropped": 2})
	})
}

func TestCloseWithoutCallsReturnsAtOnce(t *testing.T) {
	d, _ := over(t, oneEach(t), &deaf{})
	d.Close(t.Context())
	d.Close(t.Context())
}

func TestAPanicOnTheWayToAHookInShadowCostsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		metrics, k := prometheus.NewRegistry(), static{snapshot: oneEach(t)}
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: k, Clusters: k,
			Options: observe.Options{
				Metrics: metrics, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, Streams: &deaf{beat: func() { panic("boom") }},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 * dispatcher.MaxShadowCalls { // none keeps its place for longer than its time
			allowed(t, d, validate)
			allowed(t, d, mutate)
			<-time.After(5 * time.Second)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		expectCounts(t, metrics, map[string]float64{"failed": 4 * dispatcher.MaxShadowCalls})
		if !strings.Contains(log.String(), `level=ERROR msg="panic while calling a hook in shadow" uid=u panic=boom`) {
			t.Errorf("log %s", log.String())
		}
	})
}
