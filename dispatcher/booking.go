package dispatcher

import (
	"bytes"
	"fmt"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// patchedPerObject is what a patch takes for each object nested in the one that it is applied to, such as the containers of a
// pod: as Go objects they are large however short they are written. What it takes for each byte has been booked with the
// review (review.PatchedPerByte).
const patchedPerObject = 1 << 10

// smallVerdict is up to how many bytes a text in a verdict is part of what any review takes.
const smallVerdict = 4 << 10

// book books what a verdict adds to what its review holds. There may be no room for that: an allow is then no verdict, and
// the failure policy of its hook decides; a denial is one in any case. It may be called from any goroutine, also when the
// review is over, and before anything is done with the verdict.
func (x *run) book(r review.Result) review.Result {
	v, lease := r.Verdict, x.request.Lease
	if v == nil || lease == nil || small(v) || !lease.Retain() {
		return r
	}
	defer lease.Release()
	n := int64(proto.Size(v))
	if !v.GetAllowed() {
		lease.Charge(n)
		return r
	}
	if x.request.Stage != admissionv1.Stage_STAGE_VALIDATE && len(v.GetPatch()) > 0 {
		n += patchedPerObject * int64(bytes.Count(x.request.Admission.GetObject().GetRaw(), []byte("{")))
	}
	if err := lease.Grow(n); err != nil {
		r.Verdict = nil
		r.Failure = &review.Failure{Kind: review.FailureOverload, Err: fmt.Errorf("its verdict cannot be kept: %w", err)}
	}
	return r
}

// small reports whether a verdict takes no more than is booked for any review.
func small(v *admissionv1.AdmissionResponse) bool {
	return len(v.GetPatch()) == 0 && len(v.GetWarnings()) == 0 && len(v.GetAuditAnnotations()) == 0 &&
		len(v.GetStatus().GetMessage()) <= smallVerdict && v.GetStatus().GetDetails() == nil
}
