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

// answer reads an answer.
func (c *Client) answer(ctx context.Context, e *exchange, resp *http.Response) (*admissionv1.AdmissionResponse, *review.Failure) {
	body, err := readAll(resp, c.options.MaxAnswerBytes)
	verdict, f := e.verdict(resp, body, err)
	if f != nil && ctx.Err() != nil { // What a webhook says when we hang up is no answer.
		return nil, endOf(ctx, "reading the answer of "+e.url.Host)
	}
	return verdict, f
}

// verdict makes a verdict of an answer: of what client-go's Result.Into and conversion.DecodeResponse take. About the rest
// something is wrong, but a denial in it counts (docs/deviations.md, D1).
func (e *exchange) verdict(resp *http.Response, body []byte, readErr error) (*admissionv1.AdmissionResponse, *review.Failure) {
	if f := wrong(resp, body, readErr); f != nil {
		if denial := conversion.DecodeDenial(body, e.version, e.uid); denial != nil {
			return denial, nil
		}
		return nil, f
	}
	verdict, err := conversion.DecodeResponse(body, e.version, e.uid)
	if err != nil {
		return nil, failure(review.FailureBadAnswer, "%w", err)
	}
	if e.version == versionV1beta1 && e.call.Hook.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		verdict.Patch, verdict.PatchType = nil, "" // Ignored there, and an error in v1 (SEMANTICS C33).
	}
	return verdict, nil
}

// wrong says what is wrong with an answer before it is looked into; nil when nothing is.
func wrong(resp *http.Response, body []byte, readErr error) *review.Failure {
	switch {
	case errors.Is(readErr, errTooLarge):
		return failure(review.FailureBadAnswer, "%w", readErr)
	case readErr != nil:
		return failure(review.FailureLost, "the answer was cut off: %w", readErr)
	case resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusPartialContent:
		return refusal(resp, body)
	}
	if contentType := resp.Header.Get("Content-Type"); contentType != "" {
		if _, _, err := mime.ParseMediaType(contentType); err != nil {
			return failure(review.FailureBadAnswer, "the answer's content type %.100q: %w", contentType, err)
		}
	}
	return nil
}

// readAll reads an answer as far as the limit and closes it. There may be an error beside what was read.
func readAll(resp *http.Response, limit int) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // What follows is no answer, and does not end.
	}
	const trusted = 64 << 10 // So much is reserved because a webhook says that it comes.
	var b bytes.Buffer
	b.Grow(int(min(max(resp.ContentLength, 0), trusted)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && b.Len() > limit {
		err = fmt.Errorf("%w %d bytes", errTooLarge, limit)
	}
	return b.Bytes(), err
}

// discard ends an answer that nobody needs so that its connection can be used again, if that is cheap.
func discard(resp *http.Response) {
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
}

// refusal is the failure of a call that the webhook answered with an HTTP status other than of success.
func refusal(resp *http.Response, body []byte) *review.Failure {
	kind := review.FailureHandler
	switch {
	case resp.StatusCode < http.StatusBadRequest:
		kind = review.FailureBadAnswer // Redirects above all: they are not followed.
	case resp.StatusCode == http.StatusRequestEntityTooLarge:
		kind = review.FailureTooLarge
	case resp.StatusCode == http.StatusTooManyRequests:
		kind = review.FailureOverload
	case resp.StatusCode == http.StatusServiceUnavailable:
		kind = review.FailureUnavailable
	}
	said := ""
	if to := resp.Header.Get("Location"); to != "" {
		said += fmt.Sprintf(", Location %.*q", quotedBytes, to)
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		said += fmt.Sprintf(", Retry-After %.*q", quotedBytes, after)
	}
	return failure(kind, "the webhook answered HTTP %s%s: %.*q", resp.Status, said, quotedBytes, bytes.TrimSpace(body))
}
