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

// answer is the answer of a webhook, as far as it could be read.
type answer struct {
	*http.Response // its body is closed
	body           []byte
	err            error // why body is not all
}

// verdict decodes an answer, as long as the call is waited for.
func (a *attempt) verdict(ctx context.Context, r *answer) (*admissionv1.AdmissionResponse, *review.Failure) {
	verdict, f := a.decode(r)
	if f != nil && ctx.Err() != nil { // An answer that our hanging up cut off is none.
		return nil, a.endOf(ctx, "reading the answer")
	}
	return verdict, f
}

// decode takes the answers that client-go's Result.Into and conversion.DecodeResponse take. Of the others a denial counts
// (docs/deviations.md, D1).
func (a *attempt) decode(r *answer) (*admissionv1.AdmissionResponse, *review.Failure) {
	if f := r.wrong(); f != nil {
		if denial := a.denial(r); denial != nil {
			return denial, nil
		}
		return nil, f
	}
	verdict, err := conversion.DecodeResponse(r.body, a.version, a.uid)
	if err != nil {
		return nil, failure(review.FailureBadAnswer, "%w", err)
	}
	if a.version == versionV1beta1 && a.call.Hook.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		verdict.Patch, verdict.PatchType = nil, "" // Ignored there, and an error in v1 (SEMANTICS C33).
	}
	return verdict, nil
}

// denial is the denial in an answer, however broken the rest of it is. Conversions have none.
func (a *attempt) denial(r *answer) *admissionv1.AdmissionResponse {
	if a.version == "" {
		return nil
	}
	return conversion.DecodeDenial(r.body, a.version, a.uid)
}

// wrong is why an answer counts as a failure before its body is decoded.
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
		return &answer{Response: resp} // The bytes behind it are no answer, and do not end.
	}
	const trusted = 64 << 10 // Bytes that are reserved because Content-Length announces them.
	var b bytes.Buffer
	b.Grow(int(min(max(resp.ContentLength, 0), trusted)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && b.Len() > limit {
		err = fmt.Errorf("%w %d bytes", errTooLarge, limit)
	}
	return &answer{Response: resp, body: b.Bytes(), err: err}
}

// refusal is the failure of a call that was answered with an HTTP status other than of success.
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
	hints := ""
	if to := a.Header.Get("Location"); to != "" {
		hints += fmt.Sprintf(", Location %.*q", quotedBytes, to)
	}
	if after := a.Header.Get("Retry-After"); after != "" {
		hints += fmt.Sprintf(", Retry-After %.*q", quotedBytes, after)
	}
	return failure(kind, "the webhook answered HTTP %s%s: %.*q", a.Status, hints, quotedBytes, bytes.TrimSpace(a.body))
}
