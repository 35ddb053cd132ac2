package turns

import (
	"sync"
	"time"
)

const (
	// workParts is the share of the time that a holder may work: one part in workParts.
	workParts = 4
	// workBurst is how much rest a holder may owe before it waits. A call after a pause begins at once, whatever it takes.
	workBurst = time.Second
	// maxResting bounds the holders that a pace knows. When there are more, it forgets the holders that owe no rest.
	maxResting = 1000
)

// pace bounds the share of the time that each holder works: a generic cell rate algorithm. Its methods may be called concurrently. Since one call
// works at a time, few holders owe rest at once.
type pace struct {
	mu     sync.Mutex
	rested map[string]time.Time // by holder: when it has rested from its work
}

func newPace() *pace { return &pace{rested: map[string]time.Time{}} }

// delay returns how long a holder has to wait until it may work.
func (p *pace) delay(holder string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(workBurst, p.rested[holder].Sub(now)) - workBurst
}

// worked notes that a holder has worked for a time until now.
func (p *pace) worked(holder string, now time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rested) >= maxResting {
		for other, at := range p.rested {
			if !at.After(now) {
				delete(p.rested, other)
			}
		}
	}
	from := p.rested[holder]
	if begun := now.Add(-took); from.Before(begun) {
		from = begun
	}
	p.rested[holder] = from.Add(workParts * took)
}
