package staged

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

const (
	// DefaultRepairAfter is the age of an object that is deleted, unless the options say another one: no review lasts as long.
	DefaultRepairAfter = 10 * time.Minute
	// ClockDifference is how far the clocks of two dispatchers may differ. An object becomes so much older before it is deleted.
	ClockDifference = time.Minute
	// repairInterval is the time between two passes.
	repairInterval = time.Minute
)

// keepRepaired deletes the objects that no lease ends, until ctx ends. Each dispatcher does.
func (s *Store) keepRepaired(ctx context.Context) {
	for clock.Sleep(ctx, repairInterval) {
		s.repair(ctx, time.Now())
	}
}

// repair makes one pass.
func (s *Store) repair(ctx context.Context, now time.Time) {
	for _, e := range s.cache.leftovers(now.Add(-s.options.RepairAfter - ClockDifference)) {
		revision, err := s.remove(ctx, e.key, e.set)
		switch {
		case err != nil:
			s.options.Logger.Warn("a staged object that no review holds is not deleted yet", "key", e.key, "error", err)
			continue
		case revision == 0: // it was written meanwhile
			continue
		}
		s.metrics.repaired.Inc()
		s.options.Logger.Warn("a staged object that no review holds was deleted", "key", e.key, "uid", e.object.GetUid(),
			"dispatcher", e.object.GetDispatcherId(), "lease", e.lease != 0)
	}
}

// leftovers returns the objects that no lease will end, and those staged before a time.
func (c *cache) leftovers(before time.Time) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*entry
	for _, e := range c.entries {
		if e.lease == 0 || e.object != nil && e.object.GetCreated().AsTime().Before(before) {
			out = append(out, e)
		}
	}
	return out
}
