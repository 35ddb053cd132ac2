package cluster

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// FreshFor is how long information about a cluster counts after it was last confirmed, unless [Options] set another time: by the
	// start or any event of a watch, or by an answer of discovery.
	FreshFor = 90 * time.Second
	// MinFreshFor is the shortest time that may be set: three watches and discoveries fit into it, and an API server is not asked all the
	// time.
	MinFreshFor = 15 * time.Second
	// MaxFreshFor is the longest: past it, hooks would be selected by labels that may have changed long since.
	MaxFreshFor = 10 * time.Minute
)

// freshness is the age of information about a cluster, and the last failure to renew it. The zero value was never confirmed.
// There is one writer at a time; readers take no lock.
type freshness struct {
	age       time.Duration // for which it counts; 0 is FreshFor
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

func (f *freshness) bound() time.Duration { return cmp.Or(f.age, FreshFor) }

// renewEvery is the longest time between two attempts to confirm the information, so that one may fail; usual if that is shorter.
func (f *freshness) renewEvery(usual time.Duration) time.Duration { return min(usual, f.bound()/3) }

// watchFor is how many seconds a watch lasts: the start of the next one confirms the information, also where nothing changes.
func (f *freshness) watchFor() int64 { return int64((f.bound() / 3).Seconds()) }

// confirmedAt is when the information was last confirmed; zero if it never was.
func (f *freshness) confirmedAt() time.Time {
	if at := f.confirmed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (f *freshness) fresh() bool {
	at := f.confirmed.Load()
	return at != nil && time.Since(*at) <= f.bound()
}

// check returns an error unless the data is fresh. data names it in the plural: the error begins with it.
func (f *freshness) check(data string) error {
	at := f.confirmed.Load()
	var err error
	switch {
	case at == nil:
		err = fmt.Errorf("%s are not known yet", data)
	case time.Since(*at) > f.bound():
		err = fmt.Errorf("%s were told %s ago, and count for %s", data, time.Since(*at).Round(time.Second), f.bound())
	default:
		return nil
	}
	if cause := f.lastError(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
