// Package review holds the words that the road of a review is written in: the request that is judged, the calls that
// hooks get, their results, and the folded answer.
//
// Requests and verdicts are the messages of gen: they mirror admission.k8s.io without belonging to one of its
// versions, and a second model of the same fields would only be copied back and forth. They are immutable once they
// are here: whoever wants a different one makes a new one. The package does no I/O and starts nothing; its values may be
// read from any goroutine.
package review

import (
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Request is one review to be judged.
type Request struct {
	// Stage says which hooks apply: mutating or validating ones.
	Stage admissionv1.Stage
	// Entry is the entry in the cluster's configuration that led here, perhaps with its plan (match.Entry); empty for the whole
	// stage.
	Entry string
	// Admission is the request itself. Its cluster was set from the authenticated channel.
	Admission *admissionv1.AdmissionRequest
	// Facts is what a bridge knows of its cluster; nil for everyone else.
	Facts *admissionv1.ClusterFacts
	// Lease is what the bytes of the review are accounted on; nil when nobody does. In stages with mutating hooks that are
	// also PatchedPerByte for each byte of the object. Its maker holds it until the answer has been written; who refers to
	// objects of the review for longer retains it.
	Lease *memory.Lease
	// Explain asks for an outcome of every hook of the stage, called or not.
	Explain bool
}

// PatchedPerByte is how many bytes it takes to apply patches to an object, for each of its bytes: the object before and after
// as JSON, the trees or Go objects by which they are compared, and once more for the next hook and for the answer. Measured
// with the built-in types on objects that are mostly text: up to nine allocated, up to four and a half kept.
const PatchedPerByte = 8

// ErrNoMemory is why a review is not judged whose objects take more memory decoded than there is now. Trying again may help. The
// error that wraps it is a memory.FullError too.
var ErrNoMemory = errors.New("no memory for what the objects take decoded")

// Mode says why a hook is asked.
type Mode uint8

// The modes of a call.
const (
	// Decide: the verdict decides.
	Decide Mode = iota
	// Speculative: the verdict decides if no earlier hook changes the object, and is discarded otherwise.
	Speculative
	// Hedge: another replica was asked before, and the first verdict decides.
	Hedge
	// Shadow: the verdict is recorded and decides nothing.
	Shadow
)

// Result is how one call ended: exactly one of Verdict and Failure is set.
type Result struct {
	// Verdict is what the hook said. A denial is a verdict.
	Verdict *admissionv1.AdmissionResponse
	// Failure says why there is no verdict.
	Failure *Failure
	// Timing is where the time went.
	Timing Timing
}

// Fail is the result of a call without a verdict.
func Fail(kind FailureKind, format string, args ...any) Result {
	return Result{Failure: &Failure{Kind: kind, Err: fmt.Errorf(format, args...)}}
}

// Timing is where the time of one call went.
type Timing struct {
	// Queued is how long the call waited for a free replica and for the writer.
	Queued time.Duration
	// Wire is the time from the hand-over to the stream to the verdict, less Host.
	Wire time.Duration
	// Host is what the host says it took: its queue and its handler.
	Host time.Duration
	// Instance is the process that answered; empty when none did.
	Instance string
}

// FailureKind sorts failures by what the operator has to do about them. It is a metric label: the set is closed.
type FailureKind uint8

// The kinds of failures.
const (
	// FailureTimeout: no verdict before the deadline of the call.
	FailureTimeout FailureKind = iota + 1
	// FailureLost: the session ended while the call was outstanding.
	FailureLost
	// FailureUnavailable: no host serves the hook.
	FailureUnavailable
	// FailureOverload: every replica is busy and the queue is full.
	FailureOverload
	// FailureTooLarge: the review is larger than the host takes.
	FailureTooLarge
	// FailureBadAnswer: the host answered something that is no verdict.
	FailureBadAnswer
	// FailureHandler: the host's handler failed.
	FailureHandler
	// FailurePanic: the host's handler panicked, or code of ours did.
	FailurePanic
	// FailureRefused: the host never started the call.
	FailureRefused
	// FailureCancelled: we stopped waiting. It never reaches a failure policy.
	FailureCancelled
)

// String is the kind as a metric label.
func (k FailureKind) String() string {
	names := [...]string{
		"unknown", "timeout", "lost", "unavailable", "overload", "too_large",
		"bad_answer", "handler", "panic", "refused", "cancelled",
	}
	if int(k) >= len(names) {
		return names[0]
	}
	return names[k]
}

// Failure says why a call has no verdict. The failure policy of the hook decides what that means.
type Failure struct {
	// Kind sorts the failure.
	Kind FailureKind
	// Err is the cause, for logs, traces and the operator.
	Err error
	// NotStarted is true when no handler can have run: the call may go to another replica whatever its side effects.
	NotStarted bool
}

// Error makes a Failure an error of its cause.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Answer is the folded answer to a review.
type Answer struct {
	// Response is the verdict for the caller, with the uid of the request.
	Response *admissionv1.AdmissionResponse
	// Failed is true when the request is refused without a verdict: no hook denied it, and one that has to be asked gave no
	// verdict or could not be asked. It is false for allowed requests and for denials.
	Failed bool
	// Object is the object as mutating hooks left it, if they let it pass; nil without an object. It is never written.
	Object []byte
	// Revision is the digest of the configuration that judged.
	Revision string
	// Outcomes is what happened to each hook that was called, in order; with Request.Explain also why others were not.
	Outcomes []*admissionv1.HookOutcome
}
