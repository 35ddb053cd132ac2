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

// now is the time of the API server's last answer, to the second; the time of this machine if no answer had a date.
func (d *dated) now() time.Time {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return time.Now()
}
