package jsonreview

import (
	"net/http/httptrace"
	"sync/atomic"
)

// Kept follows the connections of a call, of which a webhook may close one at any time when it is kept for the next request. A
// request that is just being sent then is lost.
type Kept struct {
	reused, heard atomic.Bool // of the last connection
	repeated      bool
}

// Trace tells of the connections of the requests with its context.
func (k *Kept) Trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			k.heard.Store(false)
			k.reused.Store(got.Reused)
		},
		GotFirstResponseByte: func() { k.heard.Store(true) },
	}
}

// Repeat reports whether a request that was lost is sent once more: no byte of an answer came, on a connection that was kept from an
// earlier request, and it is the first of the call. The webhook may have seen it: the caller knows that it may see it twice.
func (k *Kept) Repeat() bool {
	again := !k.repeated && k.reused.Load() && !k.heard.Load()
	k.repeated = k.repeated || again
	return again
}
