package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// witness makes writes, and is the hook that has to see each of them. It is
// safe for concurrent use.
type witness struct {
	// create makes one write.
	create func(ctx context.Context, name string) error

	names      atomic.Int64
	seen, made sync.Map // by name
}

// judge is the handler of the hook.
func (w *witness) judge(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
	w.seen.Store(q.Name(), true)
	return hostsdk.Allow(), nil
}

// write makes one write with a name of its own.
func (w *witness) write(ctx context.Context) error {
	name, err := w.writeOne(ctx)
	if err == nil {
		w.made.Store(name, true)
	}
	return err
}

func (w *witness) writeOne(ctx context.Context) (name string, err error) {
	name = fmt.Sprintf("write-%d", w.names.Add(1))
	return name, w.create(ctx, name)
}

// sees is an error unless the hook sees one more write, which does not count.
func (w *witness) sees(ctx context.Context) error {
	name, err := w.writeOne(ctx)
	if err != nil {
		return err
	}
	if _, ok := w.seen.Load(name); !ok {
		return errors.New("the hook has not seen it")
	}
	return nil
}

// wantAll fails the test unless the hook has seen each write that was made,
// and returns their number.
func (w *witness) wantAll(t *testing.T) (total int) {
	t.Helper()
	w.made.Range(func(name, _ any) bool {
		total++
		if _, ok := w.seen.Load(name); !ok {
			t.Errorf("%v was made, and the hook has not seen it", name)
		}
		return true
	})
	return total
}

// createDryName creates a Pod, as a dry run.
func (r *road) createDryName(ctx context.Context, name string) error {
	return r.create(ctx, name, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}
