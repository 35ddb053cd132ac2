package leader

import (
	"context"
	"reflect"
	"sync"
)

// Tasks is the work for clusters: at most one task runs for each. No task waits for another cluster's task, however slow. One goroutine
// calls Set and Wait.
type Tasks[P any] struct {
	run func(ctx context.Context, cluster string, parameters P)

	mu   sync.Mutex
	last map[string]*task[P] // of each cluster, until it has ended
}

// task is the work for one cluster with the same parameters.
type task[P any] struct {
	parameters P
	stop       context.CancelFunc
	stopped    bool // not wanted any more
	done       chan struct{}
}

// NewTasks returns Tasks that call run for each cluster. It returns when its context has ended.
func NewTasks[P any](run func(ctx context.Context, cluster string, parameters P)) *Tasks[P] {
	return &Tasks[P]{run: run, last: map[string]*task[P]{}}
}

// Set starts and ends tasks until each wanted cluster has a task with its parameters (reflect.DeepEqual). It does not wait: a cluster's new
// task begins when its last task has ended. All tasks end with ctx.
func (t *Tasks[P]) Set(ctx context.Context, wanted map[string]P) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cluster, last := range t.last {
		if p, ok := wanted[cluster]; !ok || !reflect.DeepEqual(p, last.parameters) {
			last.stop()
			last.stopped = true
		}
	}
	for cluster, p := range wanted {
		before := t.last[cluster]
		if before != nil && !before.stopped {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		next := &task[P]{parameters: p, stop: stop, done: make(chan struct{})}
		t.last[cluster] = next
		go t.perform(ctx, cluster, next, before)
	}
}

// perform runs a task once the last task of its cluster has ended.
func (t *Tasks[P]) perform(ctx context.Context, cluster string, next, before *task[P]) {
	defer close(next.done)
	defer next.stop()
	if before != nil {
		<-before.done
	}
	if ctx.Err() == nil {
		t.run(ctx, cluster, next.parameters)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[cluster] == next {
		delete(t.last, cluster)
	}
}

// Wait returns when all tasks have ended.
func (t *Tasks[P]) Wait() {
	t.mu.Lock()
	var all []chan struct{}
	for _, last := range t.last {
		all = append(all, last.done)
	}
	t.mu.Unlock()
	for _, done := range all {
		<-done
	}
}
