package cluster

import (
	"fmt"
	"sync/atomic"
	"time"
)

// FreshFor is how long information about a cluster counts after it was last confirmed: by any event of a watch (an API server
// sends a bookmark about once a minute), or by an answer of discovery.
const FreshFor = 90 * time.Second

// freshness is the age of information about a cluster, and the last failure to renew it. The zero value was never confirmed.
// There is one writer at a time; readers take no lock.
type freshness struct {
	confirmed atomic.Pointer[time.Time]
	failure   atomic.Pointer[error] // of the last attempt; nil or a nil error after a success
}

func (f *freshness) markFresh(at time.Time) { f.confirmed.Store(&at) }

func (f *freshness) markFailed(err error) { f.failure.Store(&err) }

func (f *freshness) lastError() error {
	if err := f.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *freshness) seedFrom(other *freshness) { f.confirmed.Store(other.confirmed.Load()) }

func (f *freshness) fresh() bool {
	at := f.confirmed.Load()
	return at != nil && time.Since(*at) <= FreshFor
}

// check returns an error unless the information is fresh. The error begins with what, a plural noun.
func (f *freshness) check(what string) error {
	at := f.confirmed.Load()
	var err error
	switch {
	case at == nil:
		err = fmt.Errorf("%s are not known yet", what)
	case time.Since(*at) > FreshFor:
		err = fmt.Errorf("%s were told %s ago, and count for %s", what, time.Since(*at).Round(time.Second), FreshFor)
	default:
		return nil
	}
	if cause := f.lastError(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
