package staged

import (
	"context"
	"time"
)

// Repair makes one pass of the repair at a time.
func (s *Store) Repair(ctx context.Context, now time.Time) { s.repair(ctx, now) }
