package bridge

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/handshake"
)

const (
	// MaxTimeout is the longest timeoutSeconds that Kubernetes allows an entry. A caller that asks for more gets this.
	MaxTimeout = 30 * time.Second
	// DefaultTimeout is Kubernetes' own default for an entry (SEMANTICS C36), for callers that do not say.
	DefaultTimeout = 10 * time.Second

	// roundingSlack is how much earlier than it says the API server may stop waiting. It says what is left to it in
	// whole seconds, rounded up (callHook in k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go).
	roundingSlack = time.Second
	// transportReserve is for the answer's way back and for the API server to read it: a round trip between continents
	// and a few MiB of patch on a LAN both fit.
	transportReserve = 100 * time.Millisecond
	// leastPart is the part of the asked time that is always used: 1/leastPart. Below about two seconds both reserves
	// together would leave little or nothing; half is what a rounded-up second is worth on average.
	leastPart = 2

	// writeGrace is how long past the caller's own deadline its connection is written to before it is given up.
	writeGrace = time.Second
	// refusalTime bounds a request that is refused before its deadline is known: enough for a caller to send what it is
	// sending and to read why.
	refusalTime = 5 * time.Second
)

// reviewTime is how long a review may take when its caller says that it waits for asked, of which transportReserve and
// roundingSlack are kept back:
//
//	asked 10 s  ->  10 s - 1 s - 100 ms = 8.9 s
//	asked 10 s, and the entry's timeoutSeconds are 10  ->  10 s - 100 ms = 9.9 s
//	asked 1 s   ->  at least half: 500 ms
//
// A caller that asks for exactly the timeoutSeconds of its entry has not used any of it, so that nothing was rounded.
// (It can also have been rounded up to that, when the whole write's 34 s are nearly spent; then the answer comes too late,
// as it would from any webhook.) entry comes from the plan in the path of the entry; it is 0 without one.
func reviewTime(asked, entry time.Duration) time.Duration {
	usable := asked - transportReserve
	if asked != entry {
		usable -= roundingSlack
	}
	return max(usable, asked/leastPart)
}

// handshakeKey is where the context of a connection keeps its arrival.
type handshakeKey struct{}

// arrival is what the first request of a connection has waited for before it could be sent.
type arrival struct {
	handshake time.Duration
	counted   atomic.Bool
}

// withHandshake lets the requests of a connection know what its handshake took.
func withHandshake(ctx context.Context, conn net.Conn) context.Context {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	took, ok := handshake.Took(secure)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, handshakeKey{}, &arrival{handshake: took})
}

// waited is how much of its time the caller of a request has spent on the handshake of its connection: of the first
// request of each. When many connections come at once, that is seconds.
func waited(ctx context.Context) time.Duration {
	a, ok := ctx.Value(handshakeKey{}).(*arrival)
	if !ok || a.counted.Swap(true) {
		return 0
	}
	return a.handshake
}

// after is what is left of the time of a review behind a handshake. Half of it is left in any case: a connection may have
// been opened ahead of its first request.
func after(handshake, usable time.Duration) time.Duration {
	return max(usable-handshake, usable/leastPart)
}

// askedTimeout reads ?timeout=, a Go duration as client-go sends it ("10s"). ok is false when the caller does not say.
// More than MaxTimeout is cut to it.
func askedTimeout(rawQuery string) (asked time.Duration, ok bool, err error) {
	if rawQuery == "" {
		return 0, false, nil
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return 0, false, fmt.Errorf("the query of the URL is malformed: %w", err)
	}
	if !query.Has("timeout") {
		return 0, false, nil
	}
	asked, err = time.ParseDuration(query.Get("timeout"))
	if err != nil || asked <= 0 {
		return 0, false, fmt.Errorf("timeout=%q is no duration above zero: write it as in timeout=10s", query.Get("timeout"))
	}
	return min(asked, MaxTimeout), true, nil
}
