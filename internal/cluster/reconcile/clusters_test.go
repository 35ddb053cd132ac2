package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// recorder notes the steps of tasks. A task of a cluster in hanging ends when its channel is closed.
type recorder struct {
	mu      sync.Mutex
	lines   []string
	hanging map[string]chan struct{}
}

func (r *recorder) run(ctx context.Context, cluster string, parameters int) {
	r.note("begin", cluster, parameters)
	<-ctx.Done()
	if end := r.hanging[cluster]; end != nil {
		<-end
	}
	r.note("end", cluster, parameters)
}

func (r *recorder) note(what, cluster string, parameters int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s %s%d", what, cluster, parameters))
}

// expect waits until all goroutines rest, and compares the lines since the last call.
func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.lines)
	if !slices.Equal(r.lines, want) {
		t.Errorf("got %q, want %q", r.lines, want)
	}
	r.lines = nil
}

func TestATaskThatTakesLongToEndDelaysItsOwnClusterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{hanging: map[string]chan struct{}{"slow": make(chan struct{})}}
		ctx, stop := context.WithCancel(t.Context())
		tasks := NewClusters[int, string](r.run)
		tasks.set(ctx, map[string]int{"a": 1, "slow": 1})
		r.expect(t, "begin a1", "begin slow1")
		tasks.set(ctx, map[string]int{"a": 1, "slow": 1})
		r.expect(t)
		tasks.set(ctx, map[string]int{"a": 2, "slow": 2})
		r.expect(t, "begin a2", "end a1")
		tasks.set(ctx, map[string]int{"a": 2})
		tasks.set(ctx, map[string]int{"b": 1, "slow": 3})
		r.expect(t, "begin b1", "end a2")
		close(r.hanging["slow"])
		r.expect(t, "begin slow3", "end slow1")
		stop()
		tasks.wait()
		r.expect(t, "end b1", "end slow3")
		if len(tasks.last) != 0 {
			t.Errorf("%d tasks are left", len(tasks.last))
		}
	})
}
