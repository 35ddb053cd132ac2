package outbound

import "time"

// The limits of calls to webhooks. Those that are called defaults can be set in Options.
const (
	// DefaultMaxCalls is how many calls are under way at a time, to all webhooks together. Over HTTP/1.1 each has a
	// connection of its own.
	DefaultMaxCalls = 4096
	// DefaultMaxWaiting is how many more calls wait for their turn; past it a call fails at once.
	DefaultMaxWaiting = 8192
	// DefaultMaxTargetCalls is how many calls are under way at a time to one target (an address with its CA bundle): more
	// than a kube-apiserver sends, whose own limits let about 600 requests in.
	DefaultMaxTargetCalls = 1024
	// DefaultMaxTargetWaiting is how many more calls wait for one target; past it a call fails at once.
	DefaultMaxTargetWaiting = 2048
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

	// drainBytes is the most that is read of an answer which nobody needs so that its connection can be used again.
	drainBytes = 2 << 10
	// quotedBytes is the most of an answer that is quoted in an error.
	quotedBytes = 256
)
