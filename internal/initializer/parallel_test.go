package initializer_test

import (
	"slices"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
)

// The hosts of initializers that act at the same time are asked about the same object, which is staged once. Each answers for itself, in any
// order, and the next initializer gets the object when all have answered.
func TestHostsThatActAtTheSameTime(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h, hosts := d.stage(podReview("prod", "r1", pod("p"))), []*host{newHost(), newHost()}
	calls := startAll(t, h, func(i int, done func(review.Result)) func() { return hosts[i].ask(done) }, 2, pod("p"), first, second, third)
	answers := []func(review.Result){hosts[0].request(t), hosts[1].request(t)}
	if o := (controller{t, d.store, first}).turn(); !slices.Equal(o.GetPending(), []string{first, second, third}) || o.GetTogether() != 2 {
		t.Errorf("pending %q, the first %d together", o.GetPending(), o.GetTogether())
	}
	_, version := h.Staged()
	answers[1](review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	calls[1].allowed(pod("p"))
	select {
	case r := <-calls[0].result:
		t.Errorf("the first call ends with the second: %+v", r)
	default:
	}
	answers[0](review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	calls[0].allowed(pod("p"))
	if _, now := h.Staged(); now != version {
		t.Errorf("the object is written again: version %s, then %s", version, now)
	}
	call := start(t, h, labelled("ab"), third)
	if o := (controller{t, d.store, third}).turn(); !slices.Equal(o.GetPending(), []string{third}) || o.GetTogether() > 1 {
		t.Errorf("pending %q, the first %d together", o.GetPending(), o.GetTogether())
	}
	controller{t, d.store, third}.act(labelled("c"))
	equalJSON(t, "after all", labelled("c"), call.allowed(labelled("ab")))
	h.Release(t.Context())
	d.gone()
}

// The end of one call leaves the others alone. The end of the hold ends all.
func TestOneOfTheCallsAtTheSameTimeEnds(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h, hosts := d.stage(podReview("prod", "r1", pod("p"))), []*host{newHost(), newHost(), newHost()}
	calls := startAll(t, h, func(i int, done func(review.Result)) func() { return hosts[i].ask(done) }, 3, pod("p"), first, second, third)
	hosts[0].request(t)
	answer := hosts[1].request(t)
	hosts[2].request(t)
	calls[0].cancel()
	if r := calls[0].end(); r.Failure == nil || r.Failure.Kind != review.FailureCancelled {
		t.Errorf("result %+v", r)
	}
	<-hosts[0].cancelled
	answer(review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	calls[1].allowed(pod("p"))
	h.Release(t.Context())
	if r := calls[2].end(); r.Failure == nil || r.Failure.Kind != review.FailureCancelled {
		t.Errorf("result %+v", r)
	}
	<-hosts[2].cancelled
	d.gone()
}
