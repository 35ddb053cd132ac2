package conversion

import "fmt"

// Reasons for which a review is refused: values of Error.Reason.
const (
	// ReasonNotJSON: the body is not a JSON object.
	ReasonNotJSON = "NotJSON"
	// ReasonMalformedJSON: the body begins as a JSON object, but is cut off or breaks JSON's grammar.
	ReasonMalformedJSON = "MalformedJSON"
	// ReasonWrongKind: the kind of the document is another one than AdmissionReview, or missing.
	ReasonWrongKind = "WrongKind"
	// ReasonUnsupportedVersion: the apiVersion is none that is read here.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonWrongType: a known field holds a JSON value of another type.
	ReasonWrongType = "WrongType"
	// ReasonNoRequest: the review carries no request.
	ReasonNoRequest = "NoRequest"
	// ReasonNoUID: the request has no uid, so that its answer could not be matched to it.
	ReasonNoUID = "NoUID"
	// ReasonUnencodable: a message cannot be written as an AdmissionReview; the caller's mistake.
	ReasonUnencodable = "Unencodable"
)

// Error is why a document was not read, or could not be written.
type Error struct {
	// UID is the uid of the review when the edge owes it an AdmissionReview with a denial, and in v1alpha1, which has no uid,
	// empty all the same.
	UID string
	// APIVersion is the apiVersion to answer in; empty when no answer is possible.
	APIVersion string
	// Code is the HTTP status that fits: 400 for documents, 500 for messages.
	Code int32
	// Reason is a Reason constant.
	Reason string
	// Message is for a person.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// HTTP statuses; net/http has no place in a pure package.
const (
	codeBadRequest    = 400
	codeInternalError = 500
)

func badRequest(reason, format string, args ...any) *Error {
	return &Error{Code: codeBadRequest, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func unencodable(format string, args ...any) *Error {
	return &Error{Code: codeInternalError, Reason: ReasonUnencodable, Message: fmt.Sprintf(format, args...)}
}
