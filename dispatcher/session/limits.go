package session

import "time"

// The limits of sessions. What a host says of itself can only be narrower.
const (
	// Protocol is the version of the host protocol that is spoken here.
	Protocol = 1
	// HelloTimeout is how long a new stream may take to say Hello.
	HelloTimeout = 5 * time.Second
	// DefaultOutstanding is how many calls of hooks a host takes that does not say.
	DefaultOutstanding = 16
	// MaxOutstanding is the most calls of hooks on one session, whatever the host says.
	MaxOutstanding = 1 << 16
	// DefaultFrameBytes is the largest frame of a host that does not say: gRPC's default receive limit in every language.
	DefaultFrameBytes = 4 << 20
	// MaxVerdictBytes is the largest frame that a host may send. A patch may rewrite a whole object of 3 MiB; base64 does
	// not apply here.
	MaxVerdictBytes = 4 << 20
	// MaxWholeBytes is the largest frame that a host gets which takes chunks: whatever waits behind a frame waits no longer
	// than so many bytes take.
	MaxWholeBytes = 128 << 10
	// ChunkBytes is how much of a larger review goes into one chunk.
	ChunkBytes = 64 << 10
	// UnsentBytes is how much the kernel holds for a host that it cannot send yet, with [Listener].
	UnsentBytes = 128 << 10
	// MaxBatchBytes and MaxBatchReviews bound how many small reviews go together in one frame. For more than 32 KiB, hosts that
	// use gRPC's pool of buffers get one of 1 MiB, which is cleared each time.
	MaxBatchBytes   = 32 << 10
	MaxBatchReviews = 64
	// MaxHelloBytes is the largest Hello, and MaxControlBytes the largest of the other frames that are no verdicts.
	MaxHelloBytes   = 512 << 10
	MaxControlBytes = 4 << 10
	// MaxVerdictItems is how many warnings, audit annotations and causes together one verdict may have. A patch may be long; these
	// take much more memory than they have bytes.
	MaxVerdictItems = 4096
	// MaxReasonBytes is how much is kept of a text by which a host says why there is no verdict.
	MaxReasonBytes = 1 << 10
	// MaxCapabilities is the most capabilities that a host may name; those that are not known here mean nothing.
	MaxCapabilities = 64
	// MaxOffers is the most hooks that one host may offer, and the most clusters that it may name.
	MaxOffers = 1024
	// MaxNameBytes bounds every name in Hello.
	MaxNameBytes = 512
	// MaxSessions is the most sessions of one dispatcher. An identity has no more of them than it leaves free for others:
	// half, if no other one has any.
	MaxSessions = 20_000
	// MaxUngrantedSessions is the most sessions of identities that no HookRoute grants a hook to, and MaxUngrantedOfIdentity
	// the most of one of these: a few replicas may come before their route does. After UngrantedTimeout such a session is
	// ended, and its host may dial again.
	MaxUngrantedSessions   = 256
	MaxUngrantedOfIdentity = 8
	UngrantedTimeout       = time.Minute
	// MaxWaiting is the most calls that wait for a free replica of one hook. The calls of one cluster may be as many as there
	// is room left, half of these if no other one waits. Past it a call fails at once.
	MaxWaiting = 8192
	// MaxStrays is how many frames without use a session may send at once: verdicts of unknown calls, unknown frames, pongs
	// that nobody asked for, changes of the credit. A large one counts once for every MaxControlBytes. StraysPerSecond of
	// them are forgotten again.
	MaxStrays       = 1024
	StraysPerSecond = 64

	// PingInterval is about how long either side of a session may say nothing before the host is asked for a sign of life.
	// Sessions are looked at every tick of 250 ms, and a Ping is written at the first look at which nothing was said for
	// 775 ms: within 1,025 ms, and once a second while nothing else is said. So a host that answers is silent for no longer
	// than that and the way there and back, which may take 475 ms before SuspectAfter. One that stopped right behind a frame
	// has had a Ping by SuspectAfter, and two at least by LostAfter.
	PingInterval = time.Second
	// SuspectAfter is the silence after which a session gets no new calls.
	SuspectAfter = 1500 * time.Millisecond
	// LostAfter is the silence after which a session is given up and its calls fail over: at the first look behind it, thus
	// within 2.5 s and 2.75 s, so that another replica has answered within 3 s. Time in which the dispatcher itself did not
	// look is no silence: between two looks no more than a tick of it counts.
	LostAfter = 2500 * time.Millisecond
	// StuckAfter is the time in which nothing of a frame leaves, after which a session is given up however lively the host
	// is. It is longer, since TCP may take seconds to repeat what a link has dropped, and the kernel takes up to half of
	// UnsentBytes at a time.
	StuckAfter = 5 * time.Second
	// CarriedBytes is how much of a frame has to come or to leave so that a slow link is neither a silent host nor a stuck
	// write: more than HTTP/2 says to itself.
	CarriedBytes = 1 << 10
	// LeakedAfter is how long the slot of a cancelled call may stay taken. Sessions are looked at so often: a slot that has
	// no call at two looks in a row is leaked, after LeakedAfter at least and twice as long at most. A session of whose slots
	// half or more are leaked is ended: the host dials again, with all slots free.
	LeakedAfter = MaxReview
	// HostSilence is the silence after which a host shall redial, so that its session is given up in any case. Up to then
	// no session is lost for silence while more than half of those of a hook are silent: it may be us who paused.
	HostSilence = 5 * time.Second
	// ReplacedGrace is how long calls in flight go on where they are when a newer session of the same instance has replaced theirs.
	ReplacedGrace = 10 * time.Second
	// LapsedGrace is how long calls in flight go on where they are when the certificate of the host has expired, or its authority
	// is not trusted any more.
	LapsedGrace = 2 * time.Second
	// MaxProbes is how many questions whether a hook is ready are open at a time in a session.
	MaxProbes = 8
	// ProbeTimeout is how long an answer may take before the host is asked again: an SDK gives a probe 5 s.
	ProbeTimeout = 10 * time.Second
	// ProbePause is the pause behind the first answer that a hook is not ready; it doubles up to MaxProbePause. That one is also
	// behind an answer that it is: the hook is asked about until it is in rotation.
	ProbePause    = 500 * time.Millisecond
	MaxProbePause = 5 * time.Second
	// AbsenceGrace is how long calls of a hook wait for a host when the last one has just left: a restarted host is back
	// sooner. After it they fail at once, so that a dead host with failurePolicy Ignore costs a write no time.
	AbsenceGrace = time.Second
	// StartGrace is how long, from its first session on, a dispatcher waits for another host when the last one of a hook has
	// left. Hosts look names up every 5 s: most of them may not have found it yet.
	StartGrace = 6 * time.Second
	// MaxReview is the longest that a review may take, with all stages that a direct caller asks for: the largest
	// timeoutSeconds of Kubernetes. A hook that was removed is served for so long, since the snapshot of a review may have it.
	MaxReview = 30 * time.Second
	// MaxAttempts is how often one call is handed to a session, the first included.
	MaxAttempts = 3
	// PaceHalfLife is the time in which what is known of how long a replica takes counts half, when it gets no calls.
	PaceHalfLife = 5 * time.Second
	// PaceTolerance is how many times slower than another one a replica has to be before that counts in picks: among those
	// that are alike, calls are spread by how many each has.
	PaceTolerance = 2
	// RefusalPause is how long a replica that refused a call of a hook is passed over, if there is another one; twice as long
	// after each further refusal in a row.
	RefusalPause = 100 * time.Millisecond
	// MaxRefusalPause is the longest such pause.
	MaxRefusalPause = 2 * time.Second
	// SpareLooks is how many replicas are looked at for one that is idle enough for a call that nobody needs to be made.
	SpareLooks = 8

	// paceWeight is how many calls ago a call still weighs a good third of the latest one in what a replica takes.
	paceWeight = 4
	// overtakenFactor is how many times as long a call would have taken that another replica has overtaken.
	overtakenFactor = 4
	// tick is how often the silence of a session, and waiting calls, are looked at.
	tick = 250 * time.Millisecond
	// shards is how many parts the sessions are looked at in, one after the other within a tick.
	shards = 10
	// pingAfter is the silence for which a Ping is due at a look. The answer to the last one came just behind a look, which
	// may itself be a turn too early or too late.
	pingAfter = PingInterval - tick + tick/shards
)
