package reconcile

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// Clusters reconciles each cluster apart from the others: at most one task runs for each, and no task waits for another cluster's task,
// however slow. P are the parameters of a task, and S is its state. Its methods may be called concurrently; Run is called once.
type Clusters[P, S any] struct {
	run func(ctx context.Context, cluster string, parameters P)

	mu     sync.Mutex
	last   map[string]*task[P] // of each cluster, until it has ended
	states map[string]S
}

// task is the work for one cluster with the same parameters.
type task[P any] struct {
	parameters P
	stop       context.CancelFunc
	stopped    bool // not wanted any more
	done       chan struct{}
}

// NewClusters returns Clusters that call run for each cluster. It returns when its context has ended.
func NewClusters[P, S any](run func(ctx context.Context, cluster string, parameters P)) *Clusters[P, S] {
	return &Clusters[P, S]{run: run, last: map[string]*task[P]{}, states: map[string]S{}}
}

// Run has a task for each wanted cluster, until ctx ends. wanted is called again when the channel that it returned is closed.
func (t *Clusters[P, S]) Run(ctx context.Context, wanted func() (map[string]P, <-chan struct{})) {
	defer t.wait()
	for {
		all, next := wanted()
		t.set(ctx, all)
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// States are the states of the clusters, by name.
func (t *Clusters[P, S]) States() []S {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]S, 0, len(t.states))
	for _, cluster := range slices.Sorted(maps.Keys(t.states)) {
		all = append(all, t.states[cluster])
	}
	return all
}

// SetState is called by the task of a cluster. The state is forgotten when the task has ended.
func (t *Clusters[P, S]) SetState(cluster string, s S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states[cluster] = s
}

// Forget drops the state of a cluster.
func (t *Clusters[P, S]) Forget(cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.states, cluster)
}

// set starts and ends tasks until each wanted cluster has a task with its parameters (reflect.DeepEqual). It does not wait: a cluster's new
// task begins when its last task has ended. All tasks end with ctx.
func (t *Clusters[P, S]) set(ctx context.Context, wanted map[string]P) {
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
func (t *Clusters[P, S]) perform(ctx context.Context, cluster string, next, before *task[P]) {
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
	delete(t.states, cluster)
	if t.last[cluster] == next {
		delete(t.last, cluster)
	}
}

// wait returns when all tasks have ended.
func (t *Clusters[P, S]) wait() {
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
