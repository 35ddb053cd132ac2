package turns

import (
	"maps"
	"sync"
	"time"
)

const (
	// workParts is the share of the time that a holder may work: one part in workParts.
	workParts = 4
	// workBurst is how much rest a holder may owe before it waits. A call after a pause begins at once, whatever it takes.
	workBurst = time.Second
	// maxResting bounds the holders that a pace knows by name. When there are more, it forgets the holders that owe no rest.
	maxResting = 1000
	// others stands for all holders past maxResting. No holder has an empty name.
	others = ""
)

// pace bounds the share of the time that each holder works: a generic cell rate algorithm. Its methods may be called concurrently.
type pace struct {
	mu     sync.Mutex
	rested map[string]time.Time // by holder, or others: when it has rested from its work
}

func newPace() *pace { return &pace{rested: map[string]time.Time{}} }

// delay returns how long a holder has to wait until it may work.
func (p *pace) delay(holder string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(workBurst, p.rested[p.known(holder, now)].Sub(now)) - workBurst
}

// worked notes that a holder has worked for a time until now.
func (p *pace) worked(holder string, now time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	holder = p.known(holder, now)
	from := p.rested[holder]
	if begun := now.Add(-took); from.Before(begun) {
		from = begun
	}
	p.rested[holder] = from.Add(workParts * took)
}

// known returns the name by which the pace knows a holder. It needs mu.
func (p *pace) known(holder string, now time.Time) string {
	if _, ok := p.rested[holder]; ok || len(p.rested) < maxResting {
		return holder
	}
	maps.DeleteFunc(p.rested, func(_ string, at time.Time) bool { return !at.After(now) })
	if len(p.rested) < maxResting {
		return holder
	}
	return others
}
