package dispatcher_test

import (
	"context"
	"errors"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// stale is a configuration that is too old, and how that is said; an error if it must not judge.
type stale struct {
	static

	said string
	err  error

	cluster string // that was asked for
	bytes   int64
}

// Acquire implements [dispatcher.Snapshots].
func (s *stale) Acquire(_ context.Context, cluster string, bytes int64) (*match.Snapshot, string, error) {
	s.cluster, s.bytes = cluster, bytes
	return s.snapshot, s.said, s.err
}

func TestAnAnswerByAStaleConfigurationSaysSo(t *testing.T) {
	k := &stale{static: static{snapshot: compile(t, []hook{{name: "v"}}, []hook{{name: "m", needed: true}})}, said: "by permit"}
	allow := func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
	d := inProcess(t, k, map[string]inprocess.Handler{"m": allow, "v": allow})
	for _, stage := range []admissionv1.Stage{
		admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_REINVOKE, // which is answered without asking anybody
		admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_ADMIT,
	} {
		answer, err := d.Review(t.Context(), podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Response.GetAuditAnnotations()[dispatcher.AuditStale]; got != k.said || !answer.Response.GetAllowed() {
			t.Errorf("%s: said is %q: %v", stage, got, answer.Response)
		}
	}
	k.said = ""
	answer, err := d.Review(t.Context(), podReview(admissionv1.Stage_STAGE_VALIDATE, `{"kind":"Pod","apiVersion":"v1"}`))
	if _, said := answer.Response.GetAuditAnnotations()[dispatcher.AuditStale]; said || err != nil {
		t.Errorf("a fresh configuration is said to be stale, %v", err)
	}
	k.err = errors.New("too old")
	ledger, err := memory.New(memory.Options{Total: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := podReview(admissionv1.Stage_STAGE_VALIDATE, `{}`)
	if r.Reservation, err = ledger.Reserve("c", 1234); err != nil {
		t.Fatal(err)
	}
	defer r.Reservation.Release()
	if _, err := d.Review(t.Context(), r); !errors.Is(err, k.err) || k.cluster != "c" || k.bytes != 1234 {
		t.Errorf("asked for %d bytes of cluster %q: %v", k.bytes, k.cluster, err)
	}
}
