package bridge

import "sync"

// budget bounds the bytes of reviews that are held at a time, in all and for each cluster. What does not fit fails at
// once: the API server waits and tries again by itself (see outcome.go), and a queue here would hold its connections.
type budget struct {
	total, share int64 // read-only

	mu sync.Mutex
	// Guarded by mu.
	used      int64
	byCluster map[string]int64 // without zeros, so that clusters that went leave nothing behind
}

func newBudget(total, share int64) *budget {
	return &budget{total: total, share: share, byCluster: map[string]int64{}}
}

// held is how many bytes are in use.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) take(cluster string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.total || b.byCluster[cluster]+n > b.share {
		return false
	}
	b.used += n
	b.byCluster[cluster] += n
	return true
}

func (b *budget) give(cluster string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.byCluster[cluster] -= n
	if b.byCluster[cluster] == 0 {
		delete(b.byCluster, cluster)
	}
}

// lease is what one review holds of a budget. It belongs to one goroutine; its zero value holds nothing.
type lease struct {
	budget  *budget
	cluster string
	bytes   int64
}

// grow takes n bytes more, and says whether they were to be had.
func (l *lease) grow(n int64) bool {
	if !l.budget.take(l.cluster, n) {
		return false
	}
	l.bytes += n
	return true
}

// release gives everything back. It may be called again.
func (l *lease) release() {
	if l.bytes == 0 {
		return
	}
	l.budget.give(l.cluster, l.bytes)
	l.bytes = 0
}
