package analysis

import (
	"cmp"
	"slices"
)

// HookComparison is a hook at two times.
type HookComparison struct {
	// Before and After are the hook at the two times; zero but for its name at a time without a call.
	Before Hook `json:"before"`
	After  Hook `json:"after"`
	// Added is how much longer the mean review of the stage waits for the hook and no other.
	Added Duration `json:"added"`
	// Phase is the phase of a call that grew most, and Grown its growth; empty if no phase grew.
	Phase string   `json:"phase,omitempty"`
	Grown Duration `json:"grown"`
}

// Comparison is the difference between two times.
type Comparison struct {
	// Before and After are the clusters at the two times.
	Before []Cluster `json:"clustersBefore"`
	After  []Cluster `json:"clustersAfter"`
	// Hooks are the hooks of either time. The hooks that got worse come first: by their share of failures, then by the time that reviews wait.
	Hooks []HookComparison `json:"hooks"`
}

// Compared compares the reports of two times.
func Compared(before, after *Report) *Comparison {
	c := &Comparison{Before: before.Clusters, After: after.Clusters, Hooks: []HookComparison{}}
	was := map[key]Hook{}
	for _, h := range before.Hooks {
		was[h.key()] = h
	}
	for _, h := range after.Hooks {
		c.Hooks = append(c.Hooks, comparisonOf(cmp.Or(was[h.key()], named(h.key())), h))
		delete(was, h.key())
	}
	for k, h := range was {
		c.Hooks = append(c.Hooks, comparisonOf(h, named(k)))
	}
	slices.SortFunc(c.Hooks, func(a, b HookComparison) int {
		return cmp.Or(cmp.Compare(b.moreFailures(), a.moreFailures()), cmp.Compare(b.Added, a.Added), compareKeys(a.After.key(), b.After.key()))
	})
	return c
}

func (h *Hook) key() key { return key{h.Cluster, h.Stage, h.Configuration, h.Name} }

func named(k key) Hook {
	return Hook{Cluster: k.cluster, Stage: k.stage, Configuration: k.configuration, Name: k.name}
}

func comparisonOf(before, after Hook) HookComparison {
	c := HookComparison{Before: before, After: after, Added: after.Added - before.Added}
	was, is := before.Phases, after.Phases
	c.Phase, c.Grown = Phases{
		Queued: max(0, is.Queued-was.Queued), Wire: max(0, is.Wire-was.Wire), Host: max(0, is.Host-was.Host),
		Webhook: max(0, is.Webhook-was.Webhook), Applied: max(0, is.Applied-was.Applied),
	}.Largest()
	return c
}

// moreFailures is by how many whole percent of all calls more calls fail.
func (c *HookComparison) moreFailures() int {
	return c.After.FailedPercent() - c.Before.FailedPercent()
}

// FailedPercent is the part of the calls without a verdict, in whole percent.
func (h *Hook) FailedPercent() int {
	if h.Calls == 0 {
		return 0
	}
	return int(100 * h.Failed / h.Calls)
}
