package hostsdk

import "errors"

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

// The texts for errors that are not an Error.
const (
	handlerFailed = "handler failed"
	notReadyYet   = "the hook is not ready"
)

// publicText returns the message of an Error, else a text without internals.
func publicText(err error, otherwise string) string {
	var authored *Error
	if errors.As(err, &authored) && authored.Message != "" {
		return authored.Message
	}
	return otherwise
}
