package review

// Outcome is the outcome of a review, as metrics, spans, logs, audit annotations and commands name it. The set is closed.
type Outcome string

const (
	// OutcomeAllowed means that the request is admitted, and each hook that was called gave a verdict.
	OutcomeAllowed Outcome = "allowed"
	// OutcomeDenied means that a verdict denies the request.
	OutcomeDenied Outcome = "denied"
	// OutcomeFailed means that the request is refused without a denial, since a fail-closed hook gave no verdict. Also: a hook could not be matched or
	// its patch not applied, or the mesh itself failed.
	OutcomeFailed Outcome = "failed"
	// OutcomeFailedOpen means that the request is admitted although a hook gave no verdict.
	OutcomeFailedOpen Outcome = "failed-open"
	// OutcomeRefused means that no hook was called, for the review exceeds a limit or cannot be read, its caller may not send it, the
	// configuration is stale, or the process stops.
	OutcomeRefused Outcome = "refused"
)

// AuditOutcome is the key of the audit annotation with the outcome. Answers with OutcomeAllowed do not have it.
const AuditOutcome = "outcome"

// Outcome returns the outcome of the review.
func (a *Answer) Outcome() Outcome {
	switch {
	case a.Refused:
		return OutcomeRefused
	case a.Failed:
		return OutcomeFailed
	case !a.Response.GetAllowed():
		return OutcomeDenied
	case a.FailedOpen:
		return OutcomeFailedOpen
	}
	return OutcomeAllowed
}
