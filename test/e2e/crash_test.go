package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

const crashing = "crashing.example.com"

func TestCallsInFlightOnAKilledReplicaAreAnsweredByTheOther(t *testing.T) {
	citest.Gate(t, "covers hosts that are killed: a second")
	for flag, road := range map[string]func(*testing.T) *road{
		"-validate": func(t *testing.T) *road {
			r := newRoad(t, kube.Validating("crashing", onPods(crashing)))
			r.validate(t)
			return r
		},
		"-mutate": func(t *testing.T) *road {
			r := newRoad(t, kube.Mutating("crashing", onPods(crashing)))
			r.mutate(t)
			return r
		},
	} {
		t.Run(flag, func(t *testing.T) {
			r := road(t)
			p := newPair(t, r, r.createDryOf, flag+"="+crashing)

			if err := p.one.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the other one has all calls", func() error { return p.other.wasCalled(t, inFlight) })
			p.release(t)

			p.wantAnswers(t, inFlight)
		})
	}
}

// TestCallsInFlightOnAKilledReplicaFailWhenTheyHaveSideEffects: the handlers of
// the killed replica may have acted, so no other replica is asked.
func TestCallsInFlightOnAKilledReplicaFailWhenTheyHaveSideEffects(t *testing.T) {
	citest.Gate(t, "covers hosts that are killed: a second")
	hook := onPods(crashing)
	hook.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	r := newRoad(t, kube.Validating("crashing", hook))
	r.validate(t)
	p := newPair(t, r, r.createOf, "-validate="+crashing)
	lost := p.one.calls(t)

	if err := p.one.Kill(); err != nil {
		t.Fatal(err)
	}
	for range lost {
		wantError(t, <-p.answers, http.StatusInternalServerError, entryName, crashing, "failed calling webhook", "lost")
	}
	p.release(t)

	p.wantAnswers(t, inFlight-lost)
	if n := p.other.calls(t); n != inFlight-lost {
		t.Errorf("the other one was called %d times, want its own %d calls alone", n, inFlight-lost)
	}
}

func TestCallsInFlightOnAReplicaThatHangsAreAnsweredByTheOther(t *testing.T) {
	citest.Gate(t, "covers hosts that are killed: 4 s")
	r := newRoad(t, kube.Validating("crashing", onPods(crashing)))
	r.validate(t)
	p := newPair(t, r, r.createDryOf, "-validate="+crashing)

	// Neither TCP nor gRPC notices: the process just does nothing any more.
	begun := time.Now()
	if err := p.one.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.release(t)
	flow := newTraffic(t, r.createDry)
	p.wantAnswers(t, inFlight) // while it hangs
	t.Logf("all calls in flight were answered %v after the replica began to hang", time.Since(begun))
	flow.await(t)
	if err := p.one.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.one.servesAgain(t)

	flow.wantNoFailure(t)
}
