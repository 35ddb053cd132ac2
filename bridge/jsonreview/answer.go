package jsonreview

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
)

const (
	// MaxAnswerBytes is the largest answer, uncompressed: a patch that rewrites an object of 3 MiB, in base64, and as much again.
	MaxAnswerBytes = 8 << 20
	// MaxRetries is how often a call is sent again when the webhook asks for it with Retry-After: as often as client-go does
	// (NewRequest of k8s.io/client-go/rest; SEMANTICS C38).
	MaxRetries = 10
	// DefaultRetryInterval is the least time before each of these, also if the webhook asks for less with Retry-After: 0.
	DefaultRetryInterval = 100 * time.Millisecond
)

// errTooLarge and errNoMemory end the reading of an answer.
var (
	errTooLarge = errors.New("the answer is larger than")
	errNoMemory = errors.New("there is no memory for the answer")
)

// Answer is the answer of a webhook, as far as it could be read.
type Answer struct {
	*http.Response // its body is closed

	// Bytes are the body, and Err is why they are not all of it.
	Bytes []byte
	Err   error
}

// ReadAnswer reads an answer as far as a limit in bytes, and closes it. It calls book with the bytes of memory that it needs next, before it
// takes them; an error of book ends the reading, and nil books nothing.
func ReadAnswer(resp *http.Response, limit int, book func(bytes int64) error) *Answer {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &Answer{Response: resp} // The bytes behind it are no answer, and do not end.
	}
	const trusted = 64 << 10 // Bytes that are reserved because Content-Length announces them.
	b := reading{from: io.LimitReader(resp.Body, int64(limit)+1), book: book}
	err := b.all(int(min(max(resp.ContentLength, 0), trusted)) + bytes.MinRead)
	if err == nil && len(b.bytes) > limit {
		err = fmt.Errorf("%w %d bytes", errTooLarge, limit)
	}
	return &Answer{Response: resp, Bytes: b.bytes, Err: err}
}

// reading is an answer that is being read.
type reading struct {
	from  io.Reader
	book  func(bytes int64) error
	bytes []byte
}

// all reads to the end, with room for so many bytes at first. The memory doubles, and is booked before it does.
func (r *reading) all(room int) error {
	for ; ; room = 2 * cap(r.bytes) {
		if r.book != nil {
			if err := r.book(int64(room)); err != nil {
				return fmt.Errorf("%w: %w", errNoMemory, err)
			}
		}
		r.bytes = append(make([]byte, 0, room), r.bytes...)
		for len(r.bytes) < cap(r.bytes) {
			n, err := r.from.Read(r.bytes[len(r.bytes):cap(r.bytes)])
			r.bytes = r.bytes[:len(r.bytes)+n]
			switch {
			case err == io.EOF:
				return nil
			case err != nil:
				return err
			}
		}
	}
}

// Question is a question to a webhook, as far as the meaning of its answer depends on it.
type Question struct {
	// Stage is the stage of the hook.
	Stage admissionv1.Stage
	// Version is the version of the AdmissionReview; empty for a question without one, which has neither denials nor verdicts.
	Version string
	// UID is the uid of the AdmissionReview.
	UID string
}

// Verdict decodes an answer. It takes the answers that client-go's Result.Into and conversion.DecodeResponse take. Of the others a
// denial counts (docs/deviations.md, D1). Whether a patch fits the hook is left to the caller.
func (q Question) Verdict(a *Answer) (*admissionv1.AdmissionResponse, *Fault) {
	if f := a.Fault(); f != nil {
		if denial := q.Denial(a); denial != nil {
			return denial, nil
		}
		return nil, f
	}
	verdict, err := conversion.DecodeResponse(a.Bytes, q.Version, q.UID)
	if err != nil {
		return nil, fault(BadAnswer, "%w", err)
	}
	if q.Version == V1beta1 && q.Stage == admissionv1.Stage_STAGE_VALIDATE {
		verdict.Patch, verdict.PatchType = nil, "" // Ignored there, and an error in v1 (SEMANTICS C33).
	}
	return verdict, nil
}

// Denial is the denial in an answer, however broken the rest of it is; nil if there is none.
func (q Question) Denial(a *Answer) *admissionv1.AdmissionResponse {
	if q.Version == "" {
		return nil
	}
	return conversion.DecodeDenial(a.Bytes, q.Version, q.UID)
}

// Again reports whether a request is sent again, and after which pause: the webhook asks for it and has not denied the review, it was
// sent again fewer than MaxRetries times, and there is time until the deadline. interval is the shortest pause.
func (q Question) Again(a *Answer, retries int, interval time.Duration, now, deadline time.Time) (pause time.Duration, again bool) {
	pause, again = retryAfter(a.Response)
	pause = max(pause, interval)
	if !again || retries >= MaxRetries || now.Add(pause).After(deadline) || q.Denial(a) != nil {
		return 0, false
	}
	return pause, true
}

// retryAfter reports whether a webhook asks for a retry, and when: checkWait of k8s.io/client-go/rest.
func retryAfter(resp *http.Response) (pause time.Duration, again bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0, false
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		return 0, false // Absent, or a date, which client-go does not read either.
	}
	const day = 24 * 60 * 60 // Longer than any call, and no duration overflows.
	return time.Duration(min(max(seconds, 0), day)) * time.Second, true
}

// Fault is why an answer counts as a failure before its body is decoded; nil when it does not.
func (a *Answer) Fault() *Fault {
	switch {
	case errors.Is(a.Err, errTooLarge):
		return fault(BadAnswer, "%w", a.Err)
	case errors.Is(a.Err, errNoMemory):
		return fault(Overloaded, "%w", a.Err)
	case a.Err != nil:
		return fault(CutOff, "the answer was cut off: %w", a.Err)
	case a.StatusCode < http.StatusOK || a.StatusCode > http.StatusPartialContent:
		return a.refusal()
	}
	if contentType := a.Header.Get("Content-Type"); contentType != "" {
		if _, _, err := mime.ParseMediaType(contentType); err != nil {
			return fault(BadAnswer, "the answer's content type: %w", err)
		}
	}
	return nil
}

// refusal is the failure of a call that was answered with an HTTP status other than of success. It quotes the code alone: who writes a
// clientConfig chooses whose answer this is, and reads the error.
func (a *Answer) refusal() *Fault {
	kind := Failed
	switch {
	case a.StatusCode < http.StatusBadRequest:
		kind = BadAnswer // Redirects above all: they are not followed.
	case a.StatusCode == http.StatusRequestEntityTooLarge:
		kind = TooLarge
	case a.StatusCode == http.StatusTooManyRequests:
		kind = Overloaded
	case a.StatusCode == http.StatusServiceUnavailable:
		kind = Unavailable
	}
	hint := ""
	if a.StatusCode/100 == 3 {
		hint = ", and redirects are not followed"
	}
	return fault(kind, "the webhook answered HTTP %d %s%s", a.StatusCode, http.StatusText(a.StatusCode), hint)
}
