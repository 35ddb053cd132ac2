package pool

import "time"

// The limits of the replicas of one hook, and of the calls that wait for one.
const (
	// MaxWaiting is the most calls that wait for a free replica of one hook. The calls of one cluster may be as many as there
	// is room left, half of these if no other one waits. Past it a call fails at once.
	MaxWaiting = 8192
	// AbsenceGrace is how long calls of a hook wait for a host when the last one has just left: a restarted host is back
	// sooner. After it they fail at once, so that a dead host with failurePolicy Ignore costs a write no time.
	AbsenceGrace = time.Second
	// MaxAttempts is how often one call is handed to a session, the first included.
	MaxAttempts = 3
	// PaceHalfLife is the time after which a replica's measured latency counts half, when it gets no calls.
	PaceHalfLife = 5 * time.Second
	// PaceTolerance is how many times slower than another one a replica has to be before that counts in picks: among those
	// that are alike, calls are spread by how many each has.
	PaceTolerance = 2
	// RefusalPause is how long a replica that refused a call of a hook is passed over, if there is another one; twice as long
	// after each further refusal in a row.
	RefusalPause = 100 * time.Millisecond
	// MaxRefusalPause is the longest such pause.
	MaxRefusalPause = 2 * time.Second
	// SpareLooks is how many replicas pick looks at for an optional call, which needs an idle one.
	SpareLooks = 8
	// paceWeight is how many calls ago a call still weighs a good third of the latest call in the pace of a replica.
	paceWeight = 4
	// overtakenFactor is how many times as long a call would have taken that another replica has overtaken.
	overtakenFactor = 4
)
