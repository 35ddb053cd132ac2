package jsonreview

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

const userAgent = "portcullis-admission"

// NewRequest is the request for the answer to a body from a webhook whose caller waits as long as timeout, see Timeout. at is not
// changed; its query is replaced.
func NewRequest(ctx context.Context, at *url.URL, body Body, timeout time.Duration) *http.Request {
	to := Location(at, timeout)
	r := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {userAgent},
		},
		Body:          body.Open(),
		GetBody:       func() (io.ReadCloser, error) { return body.Open(), nil },
		ContentLength: body.Len(),
	}
	return r.WithContext(ctx)
}

// Location is the URL of a request.
func Location(at *url.URL, timeout time.Duration) *url.URL {
	to := *at
	to.RawQuery = "timeout=" + timeout.String()
	return &to
}

// timeoutSlack is how much less than a whole second the time of a call may be that is sent as one: some of it has passed when
// the request is written.
const timeoutSlack = 100 * time.Millisecond

// Timeout is the timeout in the query of a request: whole seconds, as kube-apiserver writes them (SEMANTICS C36), at least
// one, and otherwise not more than the call has.
func Timeout(left time.Duration) time.Duration {
	return max(left+timeoutSlack, time.Second).Truncate(time.Second)
}
