package hostsdk

import (
	"cmp"
	"errors"
)

// Error is a failure with a text for the operator of the mesh. A handler returns one, also wrapped, to explain in public why
// there is no verdict; the text of any other error stays in the process. It is not a denial: failurePolicy decides.
type Error struct {
	// Message crosses the wire, into logs, traces and explanations of the mesh, but not to the client of the cluster. It
	// must hold no secrets.
	Message string
	// Cause is logged by this process and goes nowhere else; may be nil.
	Cause error
}

// NewError returns an Error with a text for the operator and its cause, which may be nil.
func NewError(message string, cause error) *Error {
	return &Error{Message: message, Cause: cause}
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// DeniedError is a denial as an error: a handler of any stage returns one, also wrapped, and the client of the cluster gets Response. It is a
// denial also without a Response, or with a Response that allows, and after the end of the handler's context.
type DeniedError struct{ Response *Response }

// Denied returns a [DeniedError] with a message for the client. For a denial that says more, put a [Response] into one.
func Denied(message string) *DeniedError { return &DeniedError{Deny(message)} }

// Error returns the message of the denial.
func (e *DeniedError) Error() string { return cmp.Or(e.denial().Message, "denied") }

func (e *DeniedError) denial() *Response {
	switch {
	case e == nil || e.Response == nil:
		return Deny("")
	case e.Response.Allowed:
		return Deny(e.Response.Message)
	default:
		return e.Response
	}
}

// NotStarted returns the error of a handler that has done nothing about the request, and cannot: the server behind it cannot be
// reached, for example. The call may go to another replica, whatever the side effects of the hook. The reason crosses the wire, as
// [Error.Message] does; cause is logged by this process, and may be nil.
func NotStarted(reason string, cause error) error {
	return &notStartedError{why: NewError(reason, cause)}
}

type notStartedError struct{ why *Error }

func (e *notStartedError) Error() string { return e.why.Error() }

func (e *notStartedError) Unwrap() error { return e.why }

// The texts for errors that are not an Error.
const (
	handlerFailed = "handler failed"
	notReadyYet   = "the hook is not ready"
)

// publicText returns the message of an Error, else a text without internals.
func publicText(err error, otherwise string) string {
	var authored *Error
	if errors.As(err, &authored) && authored != nil && authored.Message != "" {
		return authored.Message
	}
	return otherwise
}
