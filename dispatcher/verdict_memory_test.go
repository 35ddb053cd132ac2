package dispatcher

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The memory of a verdict is booked; without room an allow fails and a denial stays.
func TestVerdictsAreBooked(t *testing.T) {
	const free = 100 << 10
	object := `{"spec":{"a":1}}`
	mutate, validate := admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE
	large := strings.Repeat("x", free)
	for name, test := range map[string]struct {
		stage   admissionv1.Stage
		verdict *admissionv1.AdmissionResponse
		booked  bool
		fails   bool
	}{
		"an allow that says nothing costs nothing":  {validate, &admissionv1.AdmissionResponse{Allowed: true}, false, false},
		"a short reason neither":                    {validate, denied("no"), false, false},
		"warnings are booked":                       {validate, &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"w"}}, true, false},
		"so is a patch":                             {mutate, patching("[]"), true, false},
		"a patch of a validating hook is but bytes": {validate, patching("[]"), true, false},
		"an allow that does not fit is a failure":   {validate, &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{large}}, false, true},
		"so is a patch that does not fit":           {mutate, patching(large), false, true},
		"a denial that does not fit is one":         {validate, denied(large), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ledger, reservation := reservationOf(t, free/2)
			x := &run{request: &review.Request{
				Stage: test.stage, Reservation: reservation,
				Admission: &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: []byte(object)}},
			}}
			r := x.accountVerdict(review.Result{Verdict: test.verdict})
			failed := r.Failure != nil && r.Failure.Kind == review.FailureOverload && r.Verdict == nil
			if failed != test.fails || !failed && r.Verdict != test.verdict {
				t.Errorf("result %+v, want a failure: %t", r, test.fails)
			}
			if got := ledger.InUse(); (got > 0) != test.booked {
				t.Errorf("%d bytes are booked, want any: %t", got, test.booked)
			}
			reservation.Release()
			if got := x.accountVerdict(review.Result{Verdict: test.verdict}); got.Verdict != test.verdict || ledger.InUse() != 0 {
				t.Errorf("after the review %+v, %d bytes are booked", got, ledger.InUse())
			}
		})
	}
}

// Many small texts take more than their bytes.
func TestItemsOfAVerdictAreBooked(t *testing.T) {
	ledger, reservation := reservationOf(t, 1<<20)
	verdict := &admissionv1.AdmissionResponse{
		Allowed: true, Warnings: []string{"a", "b"}, AuditAnnotations: map[string]string{"c": "d"},
		Status: &admissionv1.Status{Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{}}}},
	}
	x := &run{request: &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Reservation: reservation}}
	x.accountVerdict(review.Result{Verdict: verdict})
	if got, want := ledger.InUse(), int64(proto.Size(verdict))+4*verdictItem; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

func TestFailuresAndReviewsWithoutALeaseAreNotBooked(t *testing.T) {
	x := &run{request: &review.Request{}}
	for _, r := range []review.Result{review.Fail(review.FailureLost, "gone"), {Verdict: denied(strings.Repeat("x", 1<<20))}} {
		if got := x.accountVerdict(r); got.Verdict != r.Verdict || got.Failure != r.Failure {
			t.Errorf("got %+v, want %+v", got, r)
		}
	}
}

func denied(reason string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: reason}}
}

func patching(patch string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: "JSONPatch"}
}

// reservationOf is a reservation of nothing yet that can grow by n bytes.
func reservationOf(t *testing.T, n int64) (*memory.Ledger, *memory.Reservation) {
	t.Helper()
	ledger, err := memory.New(memory.Options{Total: 2 * n})
	if err != nil {
		t.Fatal(err)
	}
	reservation, err := ledger.Reserve("prod-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	return ledger, reservation
}
