package policy_test

import (
	"context"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// static is a configuration, and a cluster, that do not change.
type static struct {
	known    match.Cluster
	snapshot *match.Snapshot
}

var (
	_ dispatcher.Snapshots = static{}
	_ dispatcher.Clusters  = static{}
)

func (s static) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return s.snapshot, "", nil
}

func (static) Release(*match.Snapshot) {}

func (s static) Cluster(string) match.Cluster { return s.known }

// noStreams has no host.
type noStreams struct{}

var _ review.Backend = noStreams{}

func (noStreams) Start(_ context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range set.Calls {
		done(i, review.Fail(review.FailureUnavailable, "there is no host"))
	}
	return func(int) {}
}
