// Package keeper keeps the entries of clusters true: the webhook configurations by which their API servers call the mesh. It plans them
// from the configuration in force, as `portcullis cluster register` does, and writes them where a Cluster has spec.registration.
//
// Each dispatcher compares, and the holder of a lease in the cluster writes. Each cluster has goroutines of its own, so a cluster that does
// not answer delays no other. An entry that is older than the configuration leaves no hook out that it brings requests for
// (match.Hook.In), so a pass may come late, and two dispatchers may write for the moment in which the lease moves.
package keeper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Generation is the configuration in force at one moment.
type Generation struct {
	// Snapshot has the hooks.
	Snapshot *match.Snapshot
	// Clusters are the documents of the clusters.
	Clusters []*kinds.Cluster
	// Fresh is whether entries may be made of it.
	Fresh bool
	// Next is closed when another one is in force, or its freshness has changed.
	Next <-chan struct{}
}

// Options configure a Keeper. All are required but Logger, CapabilityKeys, KeyOverlap and Lag.
type Options struct {
	// ID names this dispatcher in the lease.
	ID string
	// Generation returns the configuration in force.
	Generation func() Generation
	// API returns the way to the API server of a cluster. The client stays the callee's.
	API func(ctx context.Context, cluster string) (*rest.Config, *http.Client, error)
	// Memory is where the resources of a cluster are booked, to it, as long as they are kept; nil books nothing.
	Memory *memory.Ledger
	// CapabilityKeys returns the keys that make capabilities for clusters with spec.rotateCapability, nil for none; with nil there are none.
	CapabilityKeys func() *identity.CapabilityKeys
	// KeyOverlap is how long this dispatcher has known a key, and a document with spec.rotateCapability, before it replaces an accepted
	// capability by one from that key: other dispatchers may learn of them later. 0 waits for nothing.
	KeyOverlap time.Duration
	// Lag is how long an API server takes at most to obey a change of entries, which are written once more then, and compared each twice as
	// long; 0 is touch.Delay.
	Lag time.Duration
	// Metrics receives the collectors.
	Metrics prometheus.Registerer
	// Logger receives changes of entries, and failures; nil logs nothing.
	Logger *slog.Logger
}

// Keeper keeps entries. Its methods may be called concurrently; Run is called once.
type Keeper struct {
	o        Options
	attempts *prometheus.CounterVec
	planning sync.Mutex // held while the entries of a cluster are planned, so that the memory for it is needed once

	clusters *reconcile.Clusters[task, State]
}

// The results of an attempt, as in metrics.
const (
	resultUnchanged = "unchanged"
	resultChanged   = "changed"
	resultBehind    = "behind" // another dispatcher has to write
	resultFailed    = "failed"
	// resultBreakGlass: an operator of the cluster has taken the entries off the writes.
	resultBreakGlass = "break-glass"
)

// New returns a keeper. It does no I/O.
func New(o Options) (*Keeper, error) {
	if o.ID == "" || o.Generation == nil || o.API == nil || o.Metrics == nil {
		return nil, errors.New("keeper: ID, Generation, API and Metrics are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Lag = cmp.Or(o.Lag, touch.Delay)
	if o.CapabilityKeys == nil {
		o.CapabilityKeys = func() *identity.CapabilityKeys { return nil }
	}
	k := &Keeper{o: o, attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portcullis_registration_attempts_total",
		Help: "Attempts to compare the entries of a cluster with the configuration in force, and to write them, by result.",
	}, []string{"cluster", "result"})}
	k.clusters = reconcile.NewClusters[task, State](k.keep)
	return k, o.Metrics.Register(k.attempts)
}

// States are the states of all clusters whose entries are kept, by name.
func (k *Keeper) States() []State { return k.clusters.States() }

// task has the parameters for the entries of one cluster.
type task struct {
	registration kinds.Registration
	kubeconfig   string
}

// Run keeps the entries of all clusters whose documents ask for it, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.clusters.Run(ctx, func() (map[string]task, <-chan struct{}) {
		now := k.o.Generation()
		return wanted(now.Clusters), now.Next
	})
	return nil
}

// wanted are the tasks that documents ask for.
func wanted(clusters []*kinds.Cluster) map[string]task {
	all := make(map[string]task, len(clusters))
	for _, c := range clusters {
		if c.Spec.Registration != nil {
			all[c.Metadata.Name] = task{registration: *c.Spec.Registration, kubeconfig: c.Spec.Kubeconfig}
		}
	}
	return all
}
