package outbound

import (
	"context"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// verdict decodes an answer, as long as the call is waited for.
func (a *attempt) verdict(ctx context.Context, r *jsonreview.Answer) (*admissionv1.AdmissionResponse, *review.Failure) {
	if err := a.call.book(conversion.ExtentOf(r.Bytes).Typed()); err != nil && a.question.Denial(r) == nil {
		return nil, failure(review.FailureOverload, "there is no memory to decode the answer: %w", err)
	}
	verdict, fault := a.question.Verdict(r)
	if fault == nil {
		return verdict, nil
	}
	if ctx.Err() != nil { // An answer that our hanging up cut off is none.
		return nil, a.endOf(ctx, "reading the answer")
	}
	return nil, failureOf(fault)
}

// failureOf is the failure of a call whose answer has no verdict.
func failureOf(f *jsonreview.Fault) *review.Failure {
	kind := review.FailureHandler
	switch f.Kind {
	case jsonreview.BadAnswer:
		kind = review.FailureBadAnswer
	case jsonreview.CutOff:
		kind = review.FailureLost
	case jsonreview.TooLarge:
		kind = review.FailureTooLarge
	case jsonreview.Overloaded:
		kind = review.FailureOverload
	case jsonreview.Unavailable:
		kind = review.FailureUnavailable
	case jsonreview.Failed:
	}
	return &review.Failure{Kind: kind, Err: f.Err}
}
