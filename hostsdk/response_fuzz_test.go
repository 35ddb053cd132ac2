package hostsdk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// FuzzResponses sends a response through a host and its stream. A denial arrives as a denial, and no response costs the host more than
// its own call.
func FuzzResponses(f *testing.F) {
	const mebibyte = 1 << 20
	f.Add(uint8(0), "no", int32(0), "", "", 0, 0, 0, 1)
	f.Add(uint8(1), "no\xff", int32(-1), "\xff", "\xff", 1, 1, 1, 1)
	f.Add(uint8(2), "no", int32(200), "Invalid", "x", 4096, 0, 0, 1)
	f.Add(uint8(3), "no", int32(math.MaxInt32), "Invalid", "x", 5000, 5000, 5000, 1)
	f.Add(uint8(4), "no", int32(math.MinInt32), "", "\xed\xa0\x80", 0, 1, 0, mebibyte)
	f.Add(uint8(5), "no", int32(422), "", "\x00", 8, 8, 8, mebibyte)
	f.Add(uint8(6), "no", int32(422), "", "x", 1, 1, 1, 1)
	f.Add(uint8(7), "", int32(600), "", "", 0, 4097, 0, 1)
	f.Add(uint8(8), "yes", int32(0), "", "x", 0, 4097, 4097, 1)
	f.Add(uint8(9), "yes", int32(0), "", "x", 0, 16, 0, mebibyte)

	// A worker of the fuzzer calls one input at a time.
	var answer *hostsdk.Response
	var failure error
	handler := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return answer, failure }
	host, err := hostsdk.New(hostsdk.Options{Name: "fuzz", Logger: quiet()},
		hostsdk.Validate("validate", handler),
		hostsdk.Mutate("mutate", handler),
		hostsdk.Initialize("initialize", handler),
	)
	if err != nil {
		f.Fatal(err)
	}
	d := hosttest.Start(f, host)

	f.Fuzz(func(t *testing.T, way uint8, message string, code int32, reason, text string, causes, warnings, audit, times int) {
		const maxItems, maxBytes = 10_000, 32 * mebibyte
		text = strings.Repeat(text, min(max(times, 0), 2*mebibyte/max(1, len(text))))
		count := func(n int) int { return min(max(n, 0), maxItems, maxBytes/max(1, len(text))) }
		response := &hostsdk.Response{Message: message, Code: code, Reason: reason, Patch: []byte(text)}
		for i := range count(causes) {
			response.Causes = append(response.Causes, hostsdk.Cause{Field: fmt.Sprint(i), Message: text, Reason: text})
		}
		for range count(warnings) {
			response.WithWarnings(text)
		}
		for i := range count(audit) {
			response.WithAudit(fmt.Sprint(i), text)
		}
		denies := true
		answer, failure = response, nil
		switch way % 10 {
		case 1:
			answer, failure = nil, &hostsdk.DeniedError{Response: response}
		case 2:
			answer, failure = nil, fmt.Errorf("%w", &hostsdk.DeniedError{Response: response})
		case 3:
			answer, failure = nil, errors.Join(errors.New(text), hostsdk.Denied(text))
		case 6:
			answer, failure = hostsdk.Verbatim(verbatim(response)), nil
		case 7:
			answer = hostsdk.Verbatim(&admissionv1.AdmissionResponse{Allowed: true})
			answer.Allowed = false
		case 8, 9:
			response.Allowed, denies = true, false
		}
		for _, hook := range []string{"validate", "mutate", "initialize"} {
			v, err := d.Ask(t.Context(), hook, hosttest.Create(pod))
			if err != nil {
				t.Fatal(err)
			}
			answer := v.GetResponse()
			if denies && (answer == nil || answer.GetAllowed()) {
				t.Fatalf("%s: a denial became %.1000v", hook, v)
			}
			if s := answer.GetStatus(); denies && (s.GetCode() < 400 || s.GetCode() > 599) && way%10 != 6 {
				t.Errorf("%s: code %d", hook, s.GetCode())
			}
			if n := len(answer.GetStatus().GetDetails().GetCauses()) + len(answer.GetWarnings()) + len(answer.GetAuditAnnotations()); n > 4096 && way%10 != 6 {
				t.Errorf("%s: %d causes, warnings and annotations", hook, n)
			}
			if !denies && answer != nil && !answer.GetAllowed() {
				t.Errorf("%s: an allowing response became %.1000v", hook, v)
			}
		}
	})
}

// verbatim is a response as another program has put it.
func verbatim(r *hostsdk.Response) *admissionv1.AdmissionResponse {
	m := &admissionv1.AdmissionResponse{
		Status:   &admissionv1.Status{Message: r.Message, Code: r.Code, Reason: r.Reason, Details: &admissionv1.StatusDetails{}},
		Warnings: r.Warnings, AuditAnnotations: r.Audit,
	}
	for _, c := range r.Causes {
		m.Status.Details.Causes = append(m.Status.Details.Causes, nil, &admissionv1.StatusCause{Field: c.Field, Message: c.Message, Reason: c.Reason})
	}
	return m
}
