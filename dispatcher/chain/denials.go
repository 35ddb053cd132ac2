package chain

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Limits of the status of any answer. The message of a hook may have 4 MiB. An API server that bounds its audit events, by
// default to 100 KiB, discards longer ones, and the status is part of the event.
const (
	// maxMessageBytes is the most bytes of a message.
	maxMessageBytes = 32 << 10
	// maxReasonBytes is the most bytes of a reason.
	maxReasonBytes = 1 << 10
	// maxDetailsBytes is the most bytes of the details of a denial.
	maxDetailsBytes = 32 << 10
)

// Limits of an answer that names all denials, which is read in a terminal and stored in an audit event.
const (
	// maxDenials is the most denials that are listed; the others are counted.
	maxDenials = 16
	// maxDenialBytes is the most bytes of the text of each of several denials.
	maxDenialBytes = 1 << 10
	// maxCauses is the most causes of all denials together. The first denial keeps its causes.
	maxCauses = 64
	// maxCauseBytes is the most bytes of the causes that later denials add.
	maxCauseBytes = 16 << 10
)

// denials returns the status of a request that several hooks denied: the first status, with the messages and causes of all, in the order of the
// hooks.
func denials(calls []*call) *admissionv1.Status {
	first := calls[0].denial()
	if len(calls) == 1 {
		return first
	}
	out := &admissionv1.Status{
		Status: first.GetStatus(), Reason: first.GetReason(), Code: first.GetCode(), Details: withCauses(first.GetDetails(), calls[1:]),
	}
	texts := make([]string, 0, min(len(calls), maxDenials)+1)
	for _, c := range calls[:min(len(calls), maxDenials)] {
		texts = append(texts, shortened(c.denial().GetMessage(), maxDenialBytes))
	}
	who := "hooks"
	if calls[0].Hook.Policy != nil {
		who = "policies"
	}
	if more := len(calls) - maxDenials; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	out.Message = fmt.Sprintf("%d %s denied the request: %s", len(calls), who, strings.Join(texts, "; "))
	return out
}

func shortened(text string, n int) string {
	const ellipsis = "..."
	if len(text) <= n {
		return text
	}
	return firstBytes(text, n-len(ellipsis)) + ellipsis
}

// boundedDetails returns the details of a denial within maxDetailsBytes: the causes that fit, in order, and no long names.
func boundedDetails(d *admissionv1.StatusDetails) *admissionv1.StatusDetails {
	if proto.Size(d) <= maxDetailsBytes {
		return d
	}
	out := &admissionv1.StatusDetails{
		Name: firstBytes(d.GetName(), maxReasonBytes), Group: firstBytes(d.GetGroup(), maxReasonBytes),
		Kind: firstBytes(d.GetKind(), maxReasonBytes), Uid: firstBytes(d.GetUid(), maxReasonBytes),
		RetryAfterSeconds: d.GetRetryAfterSeconds(),
	}
	remaining := maxDetailsBytes - proto.Size(out)
	for _, cause := range d.GetCauses() {
		const frame = 8 // of a cause in its message
		if remaining -= proto.Size(cause) + frame; remaining < 0 {
			break
		}
		out.Causes = append(out.Causes, cause)
	}
	return out
}

// withCauses adds to the details of the first denial the causes of the others that fit.
func withCauses(first *admissionv1.StatusDetails, others []*call) *admissionv1.StatusDetails {
	var more []*admissionv1.StatusCause
	remaining, most := maxCauseBytes, maxCauses-len(first.GetCauses())
	for _, c := range others {
		for _, cause := range c.result.Verdict.GetStatus().GetDetails().GetCauses() {
			size := len(cause.GetReason()) + len(cause.GetMessage()) + len(cause.GetField())
			if len(more) >= most || size > remaining {
				continue
			}
			remaining -= size
			more = append(more, cause)
		}
	}
	if len(more) == 0 {
		return first
	}
	out := &admissionv1.StatusDetails{}
	if first != nil {
		out = proto.CloneOf(first)
	}
	out.Causes = slices.Concat(first.GetCauses(), more)
	return out
}
