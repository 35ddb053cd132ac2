package store

import (
	"context"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// inspection is one call of Options.Inspect.
type inspection struct {
	snapshot *match.Snapshot
	objects  map[config.Key]config.Object
}

// inspections is a queue of length 1: the latest inspection replaces an inspection that has not begun. The goroutine of Run
// puts, another runs.
type inspections chan inspection

// put replaces the inspection that has not begun. It never blocks.
func (c inspections) put(next inspection) {
	select {
	case <-c:
	default:
	}
	c <- next // there is room: one goroutine puts
}

// run inspects until ctx ends, in turns. It rests in between, since no change waits for findings.
func (c inspections) run(ctx context.Context, s *Store) {
	for {
		select {
		case i := <-c:
			done, err := s.opts.Work.Wait(ctx, inspecting, true)
			if err != nil {
				return
			}
			s.problems.inspected(s.opts.Inspect(ctx, i.snapshot, config.SortedObjects(i.objects)))
			done()
		case <-ctx.Done():
			return
		}
	}
}
