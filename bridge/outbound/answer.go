package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// errTooLarge ends the reading of an answer.
var errTooLarge = errors.New("the answer is larger than")

// answer is what a webhook answered, as far as it could be read.
type answer struct {
	*http.Response // its body is closed
	body           []byte
	err            error // beside the body: why it is not all
}

// answer makes a verdict of an answer, as long as somebody waits for it.
func (e *exchange) answer(ctx context.Context, a *answer) (*admissionv1.AdmissionResponse, *review.Failure) {
	verdict, f := e.verdict(a)
	if f != nil && ctx.Err() != nil { // What a webhook says when we hang up is no answer.
		return nil, e.endOf(ctx, "reading the answer")
	}
	return verdict, f
}

// verdict makes a verdict of an answer: of what client-go's Result.Into and conversion.DecodeResponse take. About the rest
// something is wrong, but a denial in it counts (docs/deviations.md, D1).
func (e *exchange) verdict(a *answer) (*admissionv1.AdmissionResponse, *review.Failure) {
	if f := a.wrong(); f != nil {
		if denial := e.denial(a); denial != nil {
			return denial, nil
		}
		return nil, f
	}
	verdict, err := conversion.DecodeResponse(a.body, e.version, e.uid)
	if err != nil {
		return nil, failure(review.FailureBadAnswer, "%w", err)
	}
	if e.version == versionV1beta1 && e.call.Hook.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		verdict.Patch, verdict.PatchType = nil, "" // Ignored there, and an error in v1 (SEMANTICS C33).
	}
	return verdict, nil
}

// denial is what a webhook denied in an answer, whatever else it says; nil when it did not, and for conversions.
func (e *exchange) denial(a *answer) *admissionv1.AdmissionResponse {
	if e.version == "" {
		return nil
	}
	return conversion.DecodeDenial(a.body, e.version, e.uid)
}

// wrong says what is wrong with an answer before it is looked into; nil when nothing is.
func (a *answer) wrong() *review.Failure {
	switch {
	case errors.Is(a.err, errTooLarge):
		return failure(review.FailureBadAnswer, "%w", a.err)
	case a.err != nil:
		return failure(review.FailureLost, "the answer was cut off: %w", a.err)
	case a.StatusCode < http.StatusOK || a.StatusCode > http.StatusPartialContent:
		return a.refusal()
	}
	if contentType := a.Header.Get("Content-Type"); contentType != "" {
		if _, _, err := mime.ParseMediaType(contentType); err != nil {
			return failure(review.FailureBadAnswer, "the answer's content type %.100q: %w", contentType, err)
		}
	}
	return nil
}

// readAnswer reads an answer as far as the limit and closes it.
func readAnswer(resp *http.Response, limit int) *answer {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &answer{Response: resp} // What follows is no answer, and does not end.
	}
	const trusted = 64 << 10 // So much is reserved because a webhook says that it comes.
	var b bytes.Buffer
	b.Grow(int(min(max(resp.ContentLength, 0), trusted)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && b.Len() > limit {
		err = fmt.Errorf("%w %d bytes", errTooLarge, limit)
	}
	return &answer{Response: resp, body: b.Bytes(), err: err}
}

// refusal is the failure of a call that the webhook answered with an HTTP status other than of success.
func (a *answer) refusal() *review.Failure {
	kind := review.FailureHandler
	switch {
	case a.StatusCode < http.StatusBadRequest:
		kind = review.FailureBadAnswer // Redirects above all: they are not followed.
	case a.StatusCode == http.StatusRequestEntityTooLarge:
		kind = review.FailureTooLarge
	case a.StatusCode == http.StatusTooManyRequests:
		kind = review.FailureOverload
	case a.StatusCode == http.StatusServiceUnavailable:
		kind = review.FailureUnavailable
	}
	said := ""
	if to := a.Header.Get("Location"); to != "" {
		said += fmt.Sprintf(", Location %.*q", quotedBytes, to)
	}
	if after := a.Header.Get("Retry-After"); after != "" {
		said += fmt.Sprintf(", Retry-After %.*q", quotedBytes, after)
	}
	return failure(kind, "the webhook answered HTTP %s%s: %.*q", a.Status, said, quotedBytes, bytes.TrimSpace(a.body))
}
