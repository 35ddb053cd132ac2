package service

import (
	"sync"
	"time"
)

const (
	// workParts is the share of the time that an identity may work: one part in workParts.
	workParts = 4
	// workBurst is how much rest an identity may owe before it waits. A call after a pause begins at once, whatever it takes.
	workBurst = time.Second
	// maxResting bounds the identities that a pace knows. When there are more, it forgets the identities that owe no rest.
	maxResting = 1000
)

// pace bounds the share of the time that each identity works: a generic cell rate algorithm without a clock. Its methods may be called concurrently.
// Since one call works at a time, few identities owe rest at once.
type pace struct {
	mu     sync.Mutex
	rested map[string]time.Time // by identity: when it has rested from its work
}

func newPace() *pace { return &pace{rested: map[string]time.Time{}} }

// delay returns how long an identity has to wait until it may work.
func (p *pace) delay(identity string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(workBurst, p.rested[identity].Sub(now)) - workBurst
}

// worked notes that an identity has worked for a time until now.
func (p *pace) worked(identity string, now time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rested) >= maxResting {
		for other, at := range p.rested {
			if !at.After(now) {
				delete(p.rested, other)
			}
		}
	}
	from := p.rested[identity]
	if begun := now.Add(-took); from.Before(begun) {
		from = begun
	}
	p.rested[identity] = from.Add(workParts * took)
}
