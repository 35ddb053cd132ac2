package observe

import (
	"sync"
	"time"
)

// LogInterval is the shortest time between two log lines of one key: failures of one kind of one hook, or slow reviews of one cluster.
// Lines that are left out are counted in the next one.
const LogInterval = 10 * time.Second

// minPrune is the number of keys below which none are removed.
const minPrune = 64

// logLimit limits the rate of log lines by key. Its methods may be called concurrently.
type logLimit[K comparable] struct {
	mu      sync.Mutex
	last    map[K]*logged
	pruneAt int // length of last at which old keys are removed
}

// logged is the time of the last line, and the number of lines that were left out since.
type logged struct {
	at   time.Time
	more int
}

func newLogLimit[K comparable]() *logLimit[K] {
	return &logLimit[K]{last: map[K]*logged{}, pruneAt: minPrune}
}

// allow reports whether to write a line, and how many with the same key were left out since the last one.
func (l *logLimit[K]) allow(key K, now time.Time) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last[key]
	switch {
	case last == nil:
		l.pruneOld(now)
		l.last[key] = &logged{at: now}
		return 0, true
	case now.Sub(last.at) < LogInterval:
		last.more++
		return 0, false
	}
	more, last.at, last.more = last.more, now, 0
	return more, true
}

// pruneOld removes keys without recent lines, once there are many: hooks and clusters are removed, and hosts recover.
func (l *logLimit[K]) pruneOld(now time.Time) {
	if len(l.last) < l.pruneAt {
		return
	}
	for key, last := range l.last {
		if now.Sub(last.at) >= 2*LogInterval {
			delete(l.last, key)
		}
	}
	l.pruneAt = max(minPrune, 2*len(l.last))
}
