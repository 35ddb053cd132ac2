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

// allowance bounds the work on the objects of a review, in time by its context and in memory by its reservation.
type allowance struct {
	context.Context //nolint:containedctx // it is a context with a reservation

	*memory.Reservation
}

var _ conversion.Allowance = allowance{}

// conversionFactor times the estimated size of the decoded object is the memory of a conversion: the object exists in its own
// version, in the internal one and in the target version.
const conversionFactor = 2

// smallVerdict is the longest message, in bytes, that fits the reservation of every review.
const smallVerdict = 4 << 10

// verdictItem is the overhead of a warning, an annotation or a cause, in bytes.
const verdictItem = 128

// accountVerdict adds the size of a verdict to the memory of its review. If it does not fit, an allow becomes a failure of
// kind overload, for which the failure policy decides; a denial stays. The memory for applying a patch is accounted when
// it is applied. accountVerdict is called before the verdict is used, from any goroutine, also after the review has ended.
func (x *run) accountVerdict(r review.Result) review.Result {
	v, reservation := r.Verdict, x.request.Reservation
	if v == nil || reservation == nil || isSmallVerdict(v) || !reservation.Retain() {
		return r
	}
	defer reservation.Release()
	n := int64(proto.Size(v))
	n += verdictItem * int64(len(v.GetWarnings())+len(v.GetAuditAnnotations())+len(v.GetStatus().GetDetails().GetCauses()))
	if !v.GetAllowed() {
		reservation.Charge(n)
		return r
	}
	if err := reservation.Grow(n); err != nil {
		r.Verdict = nil
		r.Failure = &review.Failure{Kind: review.FailureOverload, Err: fmt.Errorf("its verdict cannot be kept: %w", err)}
	}
	return r
}

// isSmallVerdict reports whether a verdict takes no more than every review reserves for it.
func isSmallVerdict(v *admissionv1.AdmissionResponse) bool {
	return len(v.GetPatch()) == 0 && len(v.GetWarnings()) == 0 && len(v.GetAuditAnnotations()) == 0 &&
		len(v.GetStatus().GetMessage()) <= smallVerdict && v.GetStatus().GetDetails() == nil
}
