package bridge

import (
	"net/url"
	"time"
)

const (
	// MaxTimeout is the longest timeoutSeconds that Kubernetes allows an entry. A caller that asks for more gets this.
	MaxTimeout = 30 * time.Second
	// defaultTimeout is Kubernetes' own default for an entry (SEMANTICS C36), for callers without a timeout.
	defaultTimeout = 10 * time.Second

	// roundingSlack is how much earlier than announced the API server may stop waiting. It announces the time that it has left in
	// whole seconds, rounded up (callHook in k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go).
	roundingSlack = time.Second
	// transportReserve is for the answer's way back and for the API server to read it: a round trip between continents
	// and a few MiB of patch on a LAN both fit.
	transportReserve = 100 * time.Millisecond
	// leastPart is the part of the asked time that is always used: 1/leastPart. Below about two seconds both reserves
	// together would leave little or nothing; half is the average of a rounded-up second.
	leastPart = 2

	// writeGrace is how long past the caller's own deadline its connection is written to before it is given up.
	writeGrace = time.Second
	// refusalTime bounds a request that is refused before its deadline is known: enough for a caller to send its body and to
	// read why.
	refusalTime = 5 * time.Second
)

// reviewTime is how long a review may take if its caller waits for asked, and how much of that is uncertain: the caller may wait for as much
// less. Only hooks that fail closed use it, since without their verdict the request is refused in any case.
//
//	asked 10 s  ->  10 s - 100 ms = 9.9 s, 1 s of it uncertain
//	asked 10 s, and the entry's timeoutSeconds are 10  ->  9.9 s, all certain
//	asked 1 s   ->  900 ms, at least half of the asked time certain: 500 ms
//
// A caller that asks for exactly the timeoutSeconds of its entry has not used any of it, so that nothing was rounded.
// (It can also have been rounded up to that, when the whole write's 34 s are nearly spent; then the answer comes too late,
// as it would from any webhook.) entry comes from the plan in the path of the entry; it is 0 without one.
func reviewTime(asked, entry time.Duration) (usable, uncertain time.Duration) {
	usable = max(asked-transportReserve, asked/leastPart)
	if asked == entry {
		return usable, 0
	}
	return usable, min(roundingSlack, usable-asked/leastPart)
}

// after is the rest of the time of a review after a handshake, and at least half: a connection may have been opened ahead of its
// first request.
func after(handshake, usable time.Duration) time.Duration {
	return max(usable-handshake, usable/leastPart)
}

// askedTimeout reads ?timeout=, a Go duration as client-go sends it ("10s"), of MaxTimeout at most. It is 0 without the parameter.
func askedTimeout(rawQuery string) (time.Duration, *refusal) {
	if rawQuery == "" {
		return 0, nil
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return 0, badRequest("the query of the URL is malformed: %v", err)
	}
	if !query.Has("timeout") {
		return 0, nil
	}
	asked, err := time.ParseDuration(query.Get("timeout"))
	if err != nil || asked <= 0 {
		return 0, badRequest("timeout=%q is no duration above zero: write it as in timeout=10s", query.Get("timeout"))
	}
	return min(asked, MaxTimeout), nil
}
