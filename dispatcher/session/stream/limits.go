package stream

import "time"

// The limits of one session. A host can only narrow them for itself.
const (
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
	// use gRPC's pool of buffers get a buffer of 1 MiB, which is cleared each time.
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
	// MaxStrays is how many frames without use a session may send at once: verdicts of unknown calls, unknown frames, pongs
	// without a Ping, changes of the credit. A large one counts once for every MaxControlBytes. StraysPerSecond of
	// them are forgotten again.
	MaxStrays       = 1024
	StraysPerSecond = 64
	// PingInterval is about how long either side of a session may say nothing before the host is asked for a sign of life.
	// Sessions are looked at every tick of 250 ms, and a Ping is written at the first look behind a silence of
	// 775 ms: within 1,025 ms, and once a second during a silence. So a host that answers is silent for no longer
	// than that and the way there and back, which may take 475 ms before SuspectAfter. A host that stopped right behind a frame
	// has had a Ping by SuspectAfter, and two at least by LostAfter.
	PingInterval = time.Second
	// SuspectAfter is the silence after which a session gets no new calls.
	SuspectAfter = 1500 * time.Millisecond
	// LostAfter is the silence after which a session is given up and its calls fail over: at the first look behind it, thus
	// within 2.5 s and 2.75 s, so that another replica has answered within 3 s. Of the
	// time between two looks at most one tick counts, so that a pause of the dispatcher is no silence.
	LostAfter = 2500 * time.Millisecond
	// HostSilence is the silence after which a host shall redial, so that its session is given up in any case. Up to then
	// no session is lost for silence while more than half of the sessions of a hook are silent: we may have paused.
	HostSilence = 5 * time.Second
	// StuckAfter is the time in which nothing of a frame leaves, after which a session is given up however lively the host
	// is. It is longer, since TCP may take seconds to repeat a dropped packet, and the kernel takes up to half of
	// UnsentBytes at a time.
	StuckAfter = 5 * time.Second
	// CarriedBytes is how much of a frame has to come or to leave so that a slow link is neither a silent host nor a stuck
	// write: more than HTTP/2 says to itself.
	CarriedBytes = 1 << 10
	// LeakedAfter is how long the slot of a cancelled call may stay taken. Sessions are looked at so often: a slot that has
	// no call at two looks in a row is leaked, after LeakedAfter at least and twice as long at most. A session of whose slots
	// half or more are leaked is ended: the host dials again, with all slots free.
	LeakedAfter = MaxReview
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
	// MaxReview is the longest that a review may take, with all stages that a direct caller asks for: the largest
	// timeoutSeconds of Kubernetes. A hook that was removed is served for so long, since the snapshot of a review may have it.
	MaxReview = 30 * time.Second
	// TickInterval is how often [Session.Tick] has to be called.
	TickInterval = 250 * time.Millisecond
	// TickShards is the number of parts in which the sessions of a dispatcher are looked at, one after the other within a TickInterval.
	TickShards = 10
	// pingAfter is the silence for which a Ping is due at a look. The answer to the last one came just behind a look, which
	// may itself be a turn too early or too late.
	pingAfter = PingInterval - TickInterval + TickInterval/TickShards
)
