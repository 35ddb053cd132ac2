package outbound

import (
	"cmp"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
)

// limits bound the calls of a client. Zero means the default, which only tests change. A cluster cannot take a limit for itself:
// of the calls in flight it has at most three times as many as it leaves free (three quarters, if it is alone), and of all calls,
// in flight and waiting, as many as it leaves room for (half).
type limits struct {
	// calls are in flight to all webhooks: 3,072 of one cluster alone. Over HTTP/1.1 each has a connection of its own.
	calls int
	// waiting more calls wait until they may start: with those in flight 6,144 of one cluster alone. Past it a call fails at once.
	// A call that waits has a goroutine, and its review is booked as long.
	waiting int
	// targetCalls are in flight to one target (an address with its CA bundle). 768 are of one cluster alone: more than a
	// kube-apiserver sends, whose own limits let about 600 requests in.
	targetCalls int
	// targetWaiting more calls wait for one target: with those in flight 1,536 of one cluster alone. Past it a call fails at once.
	targetWaiting int
	// targets is how many targets are remembered with their connections. Beyond it the least recently used target is forgotten.
	targets int
	// answerBytes is the largest answer, uncompressed: jsonreview.MaxAnswerBytes.
	answerBytes int
}

func (l limits) withDefaults() limits {
	return limits{
		calls: cmp.Or(l.calls, 4096), waiting: cmp.Or(l.waiting, 8192),
		targetCalls: cmp.Or(l.targetCalls, 1024), targetWaiting: cmp.Or(l.targetWaiting, 2048),
		targets: cmp.Or(l.targets, 1024), answerBytes: cmp.Or(l.answerBytes, jsonreview.MaxAnswerBytes),
	}
}

const (
	// maxConnecting is how many calls to one target wait for a connection at a time, while none has been made: 12 of one
	// cluster alone. There is one more for each connection that is made, and so many again when one fails. The others wait in the
	// line of their cluster, so that they fail no sooner than they would have, and go on when the target is there again.
	maxConnecting = 16
	// minConnectWait is how long a call has waited for its connection when its end counts as a connection that failed: two SYNs
	// have been lost by then. A shorter deadline of the caller proves nothing about the target, and frees its slot soon.
	minConnectWait = 3 * time.Second
	// maxAnswerHeaderBytes is the largest head of an answer.
	maxAnswerHeaderBytes = 64 << 10

	// As in client-go.
	connectTimeout      = 30 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	keepAlive           = 30 * time.Second
	idleTimeout         = 90 * time.Second
	// forgetAfter is how long an unused target is remembered.
	forgetAfter = 10 * time.Minute
	// renewAfter is how long connections are used that were opened with a client certificate from files: client-go's
	// interval for looking whether it was rotated.
	renewAfter = 5 * time.Minute
)
