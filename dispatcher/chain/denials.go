package chain

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Limits of an answer that names all denials. Whoever applies a manifest reads it in a terminal, and kube-apiserver keeps
// it in its audit event. A single denial is told as it is.
const (
	// maxDenials is how many denials are told one by one; the others are counted.
	maxDenials = 16
	// maxDenialBytes is the most bytes of the text of one of several denials.
	maxDenialBytes = 1 << 10
	// maxCauses is the most causes of all denials together. Those of the first stay, however many they are.
	maxCauses = 64
	// maxCauseBytes is the most bytes of the causes that later denials add.
	maxCauseBytes = 16 << 10
)

// denials is the status for the client of a request that hooks denied: that of the first, with the texts and the causes of
// all, in the order of the hooks.
func denials(calls []*call) *admissionv1.Status {
	first := denial(calls[0].hook, calls[0].result.Verdict.GetStatus())
	if len(calls) == 1 {
		return first
	}
	out := &admissionv1.Status{
		Status: first.GetStatus(), Reason: first.GetReason(), Code: first.GetCode(), Details: withCauses(first.GetDetails(), calls[1:]),
	}
	texts := make([]string, 0, min(len(calls), maxDenials)+1)
	for _, c := range calls[:min(len(calls), maxDenials)] {
		texts = append(texts, shortened(denial(c.hook, c.result.Verdict.GetStatus()).GetMessage()))
	}
	if more := len(calls) - maxDenials; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	out.Message = fmt.Sprintf("%d hooks denied the request: %s", len(calls), strings.Join(texts, "; "))
	return out
}

// shortened is a text of one of several denials.
func shortened(text string) string {
	const ellipsis = "..."
	if len(text) <= maxDenialBytes {
		return text
	}
	return firstBytes(text, maxDenialBytes-len(ellipsis)) + ellipsis
}

// withCauses is the details of the first denial with the causes that the others add, as many as find room.
func withCauses(first *admissionv1.StatusDetails, others []*call) *admissionv1.StatusDetails {
	var more []*admissionv1.StatusCause
	room, most := maxCauseBytes, maxCauses-len(first.GetCauses())
	for _, c := range others {
		for _, cause := range c.result.Verdict.GetStatus().GetDetails().GetCauses() {
			size := len(cause.GetReason()) + len(cause.GetMessage()) + len(cause.GetField())
			if len(more) >= most || size > room {
				continue
			}
			room -= size
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
