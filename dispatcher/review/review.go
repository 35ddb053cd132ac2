// Package review holds the values that pass between the parts that judge a review: the request, the calls of its hooks, their results, and the
// answer.
//
// Requests and verdicts are messages of gen, which mirror admission.k8s.io without a version. All values are immutable once they are here, and may be
// read from any goroutine. The package does no I/O.
package review

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// Request is one review to be judged.
type Request struct {
	// Stage selects the hooks: mutating, validating or both.
	Stage admissionv1.Stage
	// Entry is the entry in the cluster's configuration that the request came by; the zero Entry is the whole stage.
	Entry match.Entry
	// Admission is the request. Its cluster is the cluster of the authenticated caller.
	Admission *admissionv1.AdmissionRequest
	// Reservation accounts for the memory of the review; nil without a ledger. In stages with mutating hooks it includes
	// PatchedPerByte for each byte of the object. The caller holds it until the answer is written; code that uses objects of
	// the review for longer retains it.
	Reservation *memory.Reservation
	// Received is when the caller's request came in; zero is when the dispatcher gets it.
	Received time.Time
	// Deadline is when the answer is due, unless the context ends before; zero means the dispatcher's default.
	Deadline time.Time
	// Uncertain is how much of the time before Deadline the caller may no longer wait: hooks that fail open do not use it.
	Uncertain time.Duration
	// Explain requests an outcome of every hook of the stage, called or not.
	Explain bool
	// AwaitShadows has an explained review wait for its hooks in shadow until its time is over, and add their outcomes to its own.
	AwaitShadows bool
	// Expressions has an explained review add the expressions of policies that are false or fail to its outcomes.
	Expressions bool
}

// PatchedPerByte is the memory for applying patches to an object, in bytes for each of its bytes: the object before and after
// as JSON, the trees or Go objects by which they are compared, and copies for the next hook and for the answer. Measured with
// the built-in types on objects that are mostly text: up to nine allocated, up to four and a half kept.
const PatchedPerByte = 8

// ErrNoConfiguration is the error of a review that came before the first configuration: no caller is known yet. A retry, or another
// dispatcher, may help.
var ErrNoConfiguration = errors.New("the dispatcher has no configuration yet")

// ErrNoMemory is the error of a review whose decoded objects take more memory than there is now. A retry may help. The error
// that wraps it wraps a memory.FullError too.
var ErrNoMemory = errors.New("no memory for the decoded objects")

// Mode is the reason of a call.
type Mode uint8

// The modes of a call.
const (
	// Decide: the verdict decides.
	Decide Mode = iota
	// Speculative: the verdict decides if no earlier hook changes the object, and is discarded otherwise.
	Speculative
	// Hedge: another replica was called before, and the first verdict decides.
	Hedge
	// Shadow: the verdict is recorded and decides nothing.
	Shadow
)

// Call is one call of one hook.
type Call struct {
	// ID is unique in the review.
	ID int
	// Hook is the hook to call.
	Hook *match.Hook
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Mode is the reason of the call.
	Mode Mode
	// Deadline is the time from which on a verdict is too late.
	Deadline time.Time
	// Span is the span of the call; not valid without tracing.
	Span trace.SpanContext
}

// Result is the result of one call: either a verdict or a failure. A policy that fails has both.
type Result struct {
	// Verdict is the response of the hook; nil for a failure. A denial is a verdict. Beside a failure it is the answer of the policy: it allows
	// if the policy fails open or does not deny, else it refuses the request, in the words of kube-apiserver. Its warnings and audit annotations count.
	Verdict *admissionv1.AdmissionResponse
	// Failure is the reason why there is no verdict; nil for a verdict.
	Failure *Failure
	// Why is [match.Judgement.Why]: why a policy does not apply, or denies. It is empty for hooks.
	Why string
	// Timing splits the time of the call.
	Timing Timing
	// Expressions are the expressions of a policy that are false or fail, if [Request.Expressions] is set.
	Expressions []*admissionv1.Expression
}

// Fail returns the result of a call without a verdict.
func Fail(kind FailureKind, format string, args ...any) Result {
	return Result{Failure: &Failure{Kind: kind, Err: fmt.Errorf(format, args...)}}
}

// NotStarted returns the failure of a call that no handler has seen: another host may have it, whatever its side effects.
func NotStarted(kind FailureKind, why string) *Failure {
	return &Failure{Kind: kind, Err: errors.New(why), NotStarted: true}
}

// Cancelled returns the result of a call that ended before it had one.
func Cancelled() Result { return Fail(FailureCancelled, "no longer waited for") }

// Timing splits the time of one call. Of a call without a verdict the phases last until it was given up.
type Timing struct {
	// Queued is the wait for a free replica and for the writer.
	Queued time.Duration
	// Wire is the time from the hand-over to the stream to the verdict, less Host.
	Wire time.Duration
	// Host is the time that the host reports: its queue and its handler. Without a verdict it is the time since the hand-over, in the place
	// of Wire, unless the host has been silent.
	Host time.Duration
	// HostQueued is the time in the host's queue.
	HostQueued time.Duration
	// Instance is the process that answered, or had the call last; empty if none had it.
	Instance string
	// Staged names the staged object of an initializer's call; nil for other calls, and while nothing is staged.
	Staged *Staged
}

// Staged names a staged object at one time.
type Staged struct {
	// UID is the uid of the hold, not of the object in the cluster.
	UID string
	// ResourceVersion is the version in the store.
	ResourceVersion string
}

// FailureKind classifies failures by their remedy for an operator. It is a metric label: the set is closed.
type FailureKind uint8

// The kinds of failures.
const (
	// FailureTimeout: no verdict before the deadline of the call.
	FailureTimeout FailureKind = iota + 1
	// FailureLost: the session ended while the call was outstanding.
	FailureLost
	// FailureUnavailable: no host serves the hook.
	FailureUnavailable
	// FailureOverload: all replicas are busy and the queue is full.
	FailureOverload
	// FailureTooLarge: the review is larger than the host takes.
	FailureTooLarge
	// FailureBadAnswer: the host's answer is not a verdict.
	FailureBadAnswer
	// FailureHandler: the host's handler failed.
	FailureHandler
	// FailurePanic: the host's handler or the dispatcher panicked.
	FailurePanic
	// FailureRefused: the host never started the call.
	FailureRefused
	// FailureCancelled: the dispatcher cancelled the call. No failure policy applies.
	FailureCancelled
)

// String returns the kind as a metric label.
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

// Failure is the reason why a call has no verdict. The failure policy of the hook decides its effect.
type Failure struct {
	// Kind classifies the failure.
	Kind FailureKind
	// Err is the cause, for logs, traces and the operator.
	Err error
	// NotStarted is true if no handler can have run: the call may be retried on another replica whatever its side effects.
	NotStarted bool
	// Acted is [match.Judgement.Acted].
	Acted bool
}

// Error implements error. The text is UTF-8, as protobuf and traces demand, also if the cause quotes bytes of a webhook that are not.
func (f *Failure) Error() string { return strings.ToValidUTF8(f.Err.Error(), string(utf8.RuneError)) }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Answer is the answer to a review.
type Answer struct {
	// Response is the response to the caller, with the uid of the request.
	Response *admissionv1.AdmissionResponse
	// Failed is true if the request is refused without a denial: a fail-closed hook gave no verdict, or a hook could not be
	// matched or its patch not applied. It is false for allowed requests and for denials.
	Failed bool
	// FailedOpen is true if a hook gave no verdict and the review went on.
	FailedOpen bool
	// Refused is true if the request is refused before any hook was called, since it may not or cannot be judged.
	Refused bool
	// Object is the object after the mutating hooks, if they allowed the request; nil without an object. It is never written.
	Object []byte
	// Revision is the digest of the configuration.
	Revision string
	// Outcomes are the outcomes of all hooks, in order, if Request.Explain is set.
	Outcomes []*admissionv1.HookOutcome
}
