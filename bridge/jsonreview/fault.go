package jsonreview

import "fmt"

// FaultKind classifies faults by their cause.
type FaultKind uint8

// The kinds of faults.
const (
	// BadAnswer: the answer is no verdict.
	BadAnswer FaultKind = iota + 1
	// CutOff: the answer ended early.
	CutOff
	// Failed: an HTTP status of an error, beside those below.
	Failed
	// TooLarge: the review is larger than the webhook takes (413).
	TooLarge
	// Overloaded: the webhook has too many calls (429).
	Overloaded
	// Unavailable: the webhook does not serve (503).
	Unavailable
)

// Fault is why an answer has no verdict. It is a failure of the call, never a denial.
type Fault struct {
	// Kind classifies it.
	Kind FaultKind
	// Err is the text for the operator.
	Err error
}

func fault(kind FaultKind, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Err: fmt.Errorf(format, args...)}
}
