package hostsdk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Response is a verdict: [Allow], [Deny] and [Patch] make one. It belongs to the handler until it is returned.
type Response struct {
	// Allowed is true if the write may go on.
	Allowed bool
	// Message tells the person whose write was refused why, and how to change it.
	Message string
	// Code is the HTTP status that this person gets, 400 to 599; any other means 403.
	Code int32
	// Reason is the machine-readable reason of the denial; empty means "Forbidden" with code 403, else none.
	Reason string
	// Causes lists the fields at fault.
	Causes []Cause
	// Patch is a JSON Patch (RFC 6902) against the object of the request, byte for byte as the handler was given it;
	// never of a validating hook. Empty means no change. A denial carries none.
	Patch []byte
	// Warnings are shown to the client, one line each, whatever the verdict; 120 characters or fewer is good manners.
	Warnings []string
	// Audit is added to the audit log: short keys without "/". Values are visible to all readers of that log.
	Audit map[string]string

	verbatim *admissionv1.AdmissionResponse // takes the place of all fields; may be nil
}

// Cause is one field at fault.
type Cause struct {
	// Field is its path, for example "spec.containers[0].image".
	Field string
	// Message is for a person.
	Message string
	// Reason is machine-readable, for example "FieldValueInvalid"; may be empty.
	Reason string
}

// Allow is the verdict that the write may go on.
func Allow() *Response { return &Response{Allowed: true} }

// Deny is the verdict that the write is refused, with 403 Forbidden and a message for the person who made it.
func Deny(message string) *Response { return &Response{Message: message} }

// Patch allows the write and changes the object by a JSON Patch (RFC 6902). To have the patch made from a changed object,
// see package hostsdk/kube.
func Patch(patch []byte) *Response { return &Response{Allowed: true, Patch: patch} }

// Verbatim is a verdict as another program has put it, for adapters. The dispatcher judges it as it judges the answer of a JSON
// webhook: the status of a denial has no default of this package, and a patch that does not fit is a failure. m belongs to the host
// from now on; the other fields of the Response are not used.
func Verbatim(m *admissionv1.AdmissionResponse) *Response {
	return &Response{Allowed: m.GetAllowed(), verbatim: m}
}

// WithCode sets the HTTP status of a denial, 400 to 599, and returns r.
func (r *Response) WithCode(code int32) *Response {
	r.Code = code
	return r
}

// WithReason sets the machine-readable reason of a denial and returns r.
func (r *Response) WithReason(reason string) *Response {
	r.Reason = reason
	return r
}

// WithCause adds a field at fault and returns r.
func (r *Response) WithCause(field, message string) *Response {
	r.Causes = append(r.Causes, Cause{Field: field, Message: message})
	return r
}

// WithWarnings adds warnings for the client and returns r.
func (r *Response) WithWarnings(warnings ...string) *Response {
	r.Warnings = append(r.Warnings, warnings...)
	return r
}

// WithAudit adds an annotation for the audit log and returns r.
func (r *Response) WithAudit(key, value string) *Response {
	if r.Audit == nil {
		r.Audit = map[string]string{}
	}
	r.Audit[key] = value
	return r
}

// plain reports whether the response allows and sets no other field.
func (r *Response) plain() bool {
	return r.Allowed && len(r.Patch) == 0 && len(r.Warnings) == 0 && len(r.Audit) == 0 && r.verbatim == nil
}

// message returns the response on the wire. An error means that the response is not a verdict; a denial
// is always one.
func (r *Response) message(stage admissionv1.Stage) (*admissionv1.AdmissionResponse, error) {
	if r.verbatim != nil && r.Allowed == r.verbatim.GetAllowed() { // else its author has changed it
		makeValid(r.verbatim)
		return r.verbatim, nil
	}
	m, room := &admissionv1.AdmissionResponse{Allowed: r.Allowed}, maxVerdictItems
	if !r.Allowed {
		m.Status = r.status()
		room -= len(m.Status.GetDetails().GetCauses())
	}
	for _, warning := range atMost(r.Warnings, room) {
		m.Warnings = append(m.Warnings, valid(warning))
	}
	m.AuditAnnotations = validAudit(r.Audit, room-len(m.Warnings))
	if !r.Allowed {
		return m, nil
	}
	if len(r.Patch) == 0 {
		return m, nil
	}
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		return nil, NewError("a validating hook returned a patch", nil)
	}
	if !isPatch(r.Patch) {
		return nil, NewError("the patch is not a JSON Patch: want a JSON array of operations", nil)
	}
	m.Patch, m.PatchType = r.Patch, "JSONPatch"
	return m, nil
}

// unsendable returns which parts of the response are not sent as its author wrote them; nil without any.
func (r *Response) unsendable() error {
	items := len(r.Warnings) + len(r.Audit)
	if !r.Allowed {
		items += len(r.Causes)
	}
	switch {
	case r.verbatim != nil:
		return nil
	case r.hasForeignCode():
		return fmt.Errorf("code %d is none of HTTP's errors: the client gets 403", r.Code)
	case items > maxVerdictItems:
		return fmt.Errorf("%d causes, warnings and audit annotations: the first %d are sent", items, maxVerdictItems)
	default:
		return nil
	}
}

// atMost returns the first n items of a list, or all of them.
func atMost[T any](list []T, n int) []T { return list[:min(len(list), n)] }

// hasForeignCode reports whether a denial sets a code that is none of an error of HTTP.
func (r *Response) hasForeignCode() bool {
	return !r.Allowed && r.verbatim == nil && r.Code != 0 && (r.Code < http.StatusBadRequest || r.Code > maxCode)
}

func (r *Response) status() *admissionv1.Status {
	s := &admissionv1.Status{Status: "Failure", Message: valid(r.Message), Reason: valid(r.Reason), Code: cmp.Or(r.Code, http.StatusForbidden)}
	if r.hasForeignCode() {
		s.Code = http.StatusForbidden
	}
	if s.Reason == "" && s.Code == http.StatusForbidden {
		s.Reason = "Forbidden"
	}
	if len(r.Causes) == 0 {
		return s
	}
	s.Details = &admissionv1.StatusDetails{}
	for _, c := range atMost(r.Causes, maxVerdictItems) {
		s.Details.Causes = append(s.Details.Causes, &admissionv1.StatusCause{
			Field: valid(c.Field), Message: valid(c.Message), Reason: valid(c.Reason),
		})
	}
	return s
}

// isPatch reports whether a patch is a JSON array; the dispatcher applies it and finds other faults.
func isPatch(patch []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(patch, " \t\r\n"), []byte("[")) && json.Valid(patch)
}

// valid makes text fit for a protobuf string. One byte that is not UTF-8 would fail the frame, and with it the session
// of every other call.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// makeValid makes all texts of a response valid.
func makeValid(m *admissionv1.AdmissionResponse) {
	s, d := m.GetStatus(), m.GetStatus().GetDetails()
	texts := []*string{&m.Uid, &m.PatchType}
	if s != nil {
		texts = append(texts, &s.Status, &s.Message, &s.Reason)
	}
	if d != nil {
		texts = append(texts, &d.Name, &d.Group, &d.Kind, &d.Uid)
	}
	for _, c := range d.GetCauses() {
		if c != nil {
			texts = append(texts, &c.Reason, &c.Message, &c.Field)
		}
	}
	for i := range m.GetWarnings() {
		texts = append(texts, &m.Warnings[i])
	}
	for _, text := range texts {
		*text = valid(*text)
	}
	m.AuditAnnotations = validAudit(m.GetAuditAnnotations(), len(m.GetAuditAnnotations()))
}

// validAudit returns the first n annotations, in the order of their keys.
func validAudit(audit map[string]string, n int) map[string]string {
	if n = min(n, len(audit)); n == 0 {
		return nil
	}
	out := make(map[string]string, n)
	for _, key := range slices.Sorted(maps.Keys(audit))[:n] { // Of two keys that become equal the same one wins each time.
		out[valid(key)] = valid(audit[key])
	}
	return out
}

// encodeVerdict appends the encoding of a verdict. A denial that cannot be encoded becomes a bare one, any other verdict a failure:
// both are unheard of, since texts are made valid before.
func encodeVerdict(b []byte, v *hostv1.Verdict) []byte {
	encoded, err := proto.MarshalOptions{}.MarshalAppend(b, v)
	if err == nil {
		return encoded
	}
	bare := &hostv1.Verdict{CallId: v.GetCallId(), HookIndex: v.GetHookIndex(), Outcome: failure("the verdict cannot be encoded")}
	if isDenial(v) {
		bare.Outcome = &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Status: Deny("").status()}}
	}
	encoded, _ = proto.MarshalOptions{}.MarshalAppend(b, bare)
	return encoded
}

func isDenial(v *hostv1.Verdict) bool { return v.GetResponse() != nil && !v.GetResponse().GetAllowed() }

const (
	// maxCode is the greatest status of an error of HTTP.
	maxCode = 599
	// frameOverhead bounds the bytes of a frame beside its verdict.
	frameOverhead = 16
	// cutOff ends a text that was too long.
	cutOff = " ... (cut)"
)

// fit makes a verdict small enough for a dispatcher that takes frames of limit bytes. A denial stays a denial: it loses
// all but its message, then the end of the message. Any other verdict becomes a failure.
func fit(v *hostv1.Verdict, limit int) *hostv1.Verdict {
	size := proto.Size(v) + frameOverhead
	if size <= limit {
		return v
	}
	small := &hostv1.Verdict{CallId: v.GetCallId(), HookIndex: v.GetHookIndex(), QueueUs: v.GetQueueUs(), HandleUs: v.GetHandleUs()}
	response := v.GetResponse()
	if !isDenial(v) {
		small.Outcome = failure(fmt.Sprintf("a verdict of %d bytes is larger than the %d that the dispatcher takes", size, limit))
		return small
	}
	status := &admissionv1.Status{Status: "Failure", Code: response.GetStatus().GetCode()}
	small.Outcome = &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Status: status}}
	// The lengths of the nested messages grow with the text.
	remaining := limit - proto.Size(small) - 2*frameOverhead
	status.Message = shorten(response.GetStatus().GetMessage(), remaining)
	return small
}

// shorten cuts text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len(cutOff)
	if cut <= 0 {
		return ""
	}
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + cutOff
}

// failure is the outcome of a call whose handler gave no verdict.
func failure(message string) *hostv1.Verdict_Error {
	return &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: shorten(valid(message), maxErrorBytes)}}
}
