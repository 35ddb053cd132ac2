package dispatcher

import (
	"context"
	"fmt"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// allowance is what the work on the objects of a review may take: its time, and the memory of its lease.
type allowance struct {
	context.Context //nolint:containedctx // it is a context with a lease

	*memory.Lease
}

var _ conversion.Allowance = allowance{}

// conversionFactor is how many times the estimate of an object as its Go type a conversion takes: it is there in the version that it
// has, in the internal one and in the one that is asked for.
const conversionFactor = 2

// smallVerdict is up to how many bytes a text in a verdict is part of what any review takes.
const smallVerdict = 4 << 10

// verdictItem is what a warning, an annotation or a cause takes beside its bytes.
const verdictItem = 128

// book books what a verdict adds to what its review holds. There may be no room for that: an allow is then no verdict, and
// the failure policy of its hook decides; a denial is one in any case. What a patch takes is booked when it is applied. It
// may be called from any goroutine, also when the review is over, and before anything is done with the verdict.
func (x *run) book(r review.Result) review.Result {
	v, lease := r.Verdict, x.request.Lease
	if v == nil || lease == nil || small(v) || !lease.Retain() {
		return r
	}
	defer lease.Release()
	n := int64(proto.Size(v))
	n += verdictItem * int64(len(v.GetWarnings())+len(v.GetAuditAnnotations())+len(v.GetStatus().GetDetails().GetCauses()))
	if !v.GetAllowed() {
		lease.Charge(n)
		return r
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
