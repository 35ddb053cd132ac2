package config

import (
	"context"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// inspection is what Inspect is to look at.
type inspection struct {
	snapshot *match.Snapshot
	objects  map[Key]Object
}

// inspections holds the one that is due, if any. One goroutine puts, and one runs them.
type inspections chan inspection

// put makes an inspection due, in place of the one that was. It never blocks.
func (c inspections) put(next inspection) {
	select {
	case <-c:
	default:
	}
	c <- next // there is room: nobody else puts
}

// run looks at what is due until ctx ends.
func (c inspections) run(ctx context.Context, s *Store) {
	for {
		select {
		case i := <-c:
			s.report.inspected(s.opts.Inspect(ctx, i.snapshot, sortedObjects(i.objects)))
		case <-ctx.Done():
			return
		}
	}
}
