package hostsdk

import "errors"

// Error is a failure with a text for the operator of the mesh. Handlers return one, also wrapped, to say in public why
// there is no verdict; the text of any other error stays in the process. It is no denial: failurePolicy decides.
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

// What the mesh is told of an error that nobody wrote for it.
const (
	handlerFailed = "handler failed"
	notReadyYet   = "the hook is not ready"
)

// publicText is what may leave the process of an error: what its author wrote, else what is said of all.
func publicText(err error, otherwise string) string {
	if authored, ok := errors.AsType[*Error](err); ok && authored.Message != "" {
		return authored.Message
	}
	return otherwise
}
