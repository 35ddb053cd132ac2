package outbound

import "time"

// The limits of calls to webhooks. Those that are called defaults can be set in Options. No cluster takes a limit for itself: of
// the calls under way it has at most three times as many as it leaves free (three quarters, if it is alone), and of all calls,
// under way and waiting, as many as it leaves room for (half).
const (
	// DefaultMaxCalls is how many calls are under way at a time, to all webhooks together: 3,072 of one cluster alone. Over
	// HTTP/1.1 each has a connection of its own.
	DefaultMaxCalls = 4096
	// DefaultMaxWaiting is how many more calls there are, which wait for their turn: with those under way 6,144 of one cluster
	// alone. Past it a call fails at once. A call that waits has a goroutine, and its review is booked as long.
	DefaultMaxWaiting = 8192
	// DefaultMaxTargetCalls is how many calls are under way at a time to one target (an address with its CA bundle). 768 are of
	// one cluster alone: more than a kube-apiserver sends, whose own limits let about 600 requests in.
	DefaultMaxTargetCalls = 1024
	// DefaultMaxTargetWaiting is how many more calls to one target there are, which wait: with those under way 1,536 of one
	// cluster alone. Past it a call fails at once.
	DefaultMaxTargetWaiting = 2048
	// MaxConnecting is how many calls to one target wait for a connection at a time, while none has been made: 12 of one
	// cluster alone. There is one more for each connection that is made, and so many again when one fails. The others wait in the
	// line of their cluster, so that they fail no sooner than they would have, and go on when the target is there again.
	MaxConnecting = 16
	// MinConnectWait is how long a call has waited for its connection when its end counts as a connection that failed: two SYNs
	// have been lost by then. A shorter deadline of the caller proves nothing about the target, and frees its place soon.
	MinConnectWait = 3 * time.Second
	// DefaultMaxTargets is how many targets are remembered with their connections. Past it the one that was not used for
	// the longest time is forgotten.
	DefaultMaxTargets = 1024
	// DefaultMaxAnswerBytes is the largest answer, uncompressed: a patch that rewrites an object of 3 MiB, in base64, and
	// as much again.
	DefaultMaxAnswerBytes = 8 << 20
	// MaxAnswerHeaderBytes is the largest head of an answer.
	MaxAnswerHeaderBytes = 64 << 10
	// MaxRetries is how often a call is sent again when the webhook asks for it with Retry-After: what client-go does
	// (NewRequest of k8s.io/client-go/rest; SEMANTICS C38).
	MaxRetries = 10
	// DefaultRetryInterval is the least time before each of these, also if the webhook asks for less with Retry-After: 0.
	DefaultRetryInterval = 100 * time.Millisecond

	// ConnectTimeout bounds a connection attempt, and TLSHandshakeTimeout the handshake after it. Both are client-go's.
	ConnectTimeout = 30 * time.Second
	// KeepAlive is the interval of TCP keepalives: client-go's.
	KeepAlive = 30 * time.Second
	// TLSHandshakeTimeout bounds a TLS handshake.
	TLSHandshakeTimeout = 10 * time.Second
	// IdleTimeout is how long a connection is kept that nobody uses: client-go's.
	IdleTimeout = 90 * time.Second
	// ForgetAfter is how long a target is remembered that nobody uses.
	ForgetAfter = 10 * time.Minute
	// RenewAfter is how long connections are used that were opened with a client certificate from files: client-go's
	// interval for looking whether it was rotated.
	RenewAfter = 5 * time.Minute

	// quotedBytes is the most of an answer that is quoted in an error.
	quotedBytes = 256
)
