package registrar

import (
	"net/http"
	"sync/atomic"
	"time"
)

// dated passes requests on, and remembers the Date of the last answer: the clock of the API server.
type dated struct {
	next http.RoundTripper
	last atomic.Pointer[time.Time]
}

// RoundTrip implements http.RoundTripper.
func (d *dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err == nil {
		if date, wrong := http.ParseTime(answer.Header.Get("Date")); wrong == nil {
			d.last.Store(&date)
		}
	}
	return answer, err
}

// now is the time of the API server, to the second, as of its last answer. It is that of this machine where no answer had one.
func (d *dated) now() time.Time {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return time.Now()
}
