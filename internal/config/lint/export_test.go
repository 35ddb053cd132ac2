package lint

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// EntryDangersWithin is EntryDangers with another limit than MaxEntryHooks.
func EntryDangersWithin(s *match.Snapshot, clusters []string, about func(*match.Hook) bool, most int) []match.Finding {
	return entryDangers(s, clusters, about, most)
}

// OverBudgetWithin finds hooks that exceed the budget together, with another limit than MaxSampleCost.
func OverBudgetWithin(ctx context.Context, s *match.Snapshot, budget time.Duration, cost int64) []match.Finding {
	return overBudget(ctx, s, budget, func(*match.Hook) bool { return true }, cost)
}
