package latency

import (
	"sync"
	"time"
)

// MinStall is how long the dispatcher has not run when that counts as a stall. A busy machine runs a process sooner.
const MinStall = 50 * time.Millisecond

// pulse counts for how long the dispatcher did not run, by minute.
type pulse struct {
	mu      sync.Mutex
	minutes [Retention/time.Minute + 2]beats // by minute, in turn
}

// beats are the sums of one minute.
type beats struct {
	begun             time.Time
	observed, stalled time.Duration
}

// Beat counts the time since the dispatcher ran the last time. It has to be called much more often than MinStall: a longer
// pause is one in which the dispatcher did not get to run, since it was short of CPU or was stopped.
func (r *Recorder) Beat(now time.Time, since time.Duration) {
	p, begun := &r.pulse, now.Truncate(time.Minute)
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.at(begun)
	if !m.begun.Equal(begun) {
		*m = beats{begun: begun}
	}
	m.observed += since
	if since >= MinStall {
		m.stalled += since
	}
}

func (p *pulse) at(minute time.Time) *beats {
	return &p.minutes[minute.Unix()/60%int64(len(p.minutes))]
}

// of returns zeros for a minute that is not known.
func (p *pulse) of(minute time.Time) (observed, stalled time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.at(minute); m.begun.Equal(minute) {
		return m.observed, m.stalled
	}
	return 0, 0
}
