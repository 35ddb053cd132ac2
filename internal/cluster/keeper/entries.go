package keeper

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

const (
	// Interval is how often entries are compared, without Options.Lag, although the configuration has not changed: others may have changed
	// them.
	Interval = intervalLags * touch.Delay
	// intervalLags is how often the lag of an API server goes into that interval.
	intervalLags = 2
	// soon is the same while another dispatcher has to write them, and until they were written once more after a change (package touch).
	soon = time.Second
	// attemptTimeout bounds one attempt.
	attemptTimeout = 20 * time.Second
	// breakGlassInterval is how often a break-glass in the cluster is logged while it is on.
	breakGlassInterval = time.Minute
)

// entries reconciles the entries of one cluster: it observes, has its machine decide, and acts. One goroutine uses it.
type entries struct {
	*machine

	k        *Keeper
	log      *slog.Logger
	lease    *reconcile.Candidate
	config   *rest.Config
	client   *http.Client // of to
	to       *registrar.Registrar
	families registration.Families
	booked   *memory.Reservation // for families
	wider    []string            // warnings of the last attempt that has compared the entries, of which each is logged once
	warned   time.Time           // when a break-glass was logged last; zero without one
}

// keep compares and writes until ctx ends.
func (k *Keeper) keep(ctx context.Context, cluster string, t task) {
	log := k.o.Logger.With("cluster", cluster)
	e := &entries{
		machine: newMachine(cluster, &k.o), k: k, log: log, lease: reconcile.NewCandidate(k.o.ID, reconcile.EntriesLease(nameOf(&t.registration)), log),
	}
	defer func() { e.booked.Release() }()
	defer k.attempts.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	k.attempts.WithLabelValues(cluster, resultFailed)
	k.attempts.WithLabelValues(cluster, resultBreakGlass)
	loop := reconcile.Loop{
		Lease: e.lease, Configuration: k.configuration, Reconcile: e.reconcile,
		Failed: func(err error) { log.Warn("the entries of the cluster are not kept", "error", err) },
	}
	loop.Run(ctx)
}

// configuration names the configuration in force by its snapshot and freshness.
func (k *Keeper) configuration() (name any, next <-chan struct{}) {
	type state struct {
		snapshot *match.Snapshot
		fresh    bool
	}
	now := k.o.Generation()
	return state{now.Snapshot, now.Fresh}, now.Next
}

// reconcile makes one attempt. A break-glass is logged apart from failures.
func (e *entries) reconcile(ctx context.Context) (time.Duration, error) {
	now := e.k.o.Generation()
	o := e.attempt(ctx, now)
	e.note(now, o)
	wait := jittered(intervalLags * e.k.o.Lag)
	if o.soon {
		wait = soon
	}
	if o.result == resultBreakGlass {
		return wait, nil
	}
	return wait, o.err
}

// jittered is a duration between 3/4 of d and d, so that dispatchers that have started together do not ask together.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/4) }

// attempt compares the entries with a configuration, and writes them if this dispatcher leads.
func (e *entries) attempt(ctx context.Context, now Generation) outcome {
	o, changes := &observed{leads: e.lease.Leads()}, []registrar.Diff(nil)
	life := ctx
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := e.observe(life, ctx, now, o)
	if err == nil {
		d := e.decide(o)
		changes, err = e.act(ctx, now.Snapshot, &d)
	}
	return e.end(o, changes, err)
}

// observe reads the configuration and the entries, and campaigns for the Lease until life ends.
func (e *entries) observe(life, ctx context.Context, now Generation, o *observed) error {
	o.at, o.fresh, o.document, o.keys = time.Now(), now.Fresh, documentOf(now.Clusters, e.cluster), e.k.o.CapabilityKeys()
	if now.Snapshot != nil {
		o.revision = now.Snapshot.Revision()
	}
	if o.document != nil {
		o.bundle, o.bundleErr = bundleOf(o.document.Spec.Registration)
	}
	release, err := e.ready(o)
	if release {
		e.lease.End()
	}
	if err != nil {
		return err
	}
	config, client, err := e.k.o.API(ctx, e.cluster)
	if err != nil {
		return err
	}
	if err := e.lease.Campaign(life, config, client); err != nil {
		return err
	}
	if client != e.client {
		if e.to, err = registrar.NewWithClient(config, client); err != nil {
			return err
		}
		e.config, e.client = config, client
	}
	o.entries, err = e.to.Read(ctx, nameOf(o.document.Spec.Registration))
	o.at = time.Now()
	return err
}

// act takes the steps of a decision.
func (e *entries) act(ctx context.Context, s *match.Snapshot, d *decision) ([]registrar.Diff, error) {
	if err := e.to.WriteAgain(ctx, d.again, &e.again); err != nil {
		return nil, err
	}
	if d.err != nil || !d.apply {
		return d.changes, d.err
	}
	if d.families {
		if err := e.refreshFamilies(ctx); err != nil {
			return nil, err
		}
	}
	d.options.Equivalents = e.families
	plan, err := e.k.plan(s, e.cluster, d.options)
	if err != nil {
		return nil, err
	}
	changes, err := e.to.Apply(ctx, plan, d.dryRun)
	if err == nil {
		e.applied(d, changes)
	}
	return changes, err
}

// plan plans the entries of one cluster at a time.
func (k *Keeper) plan(s *match.Snapshot, cluster string, o registration.Options) (*registration.Registration, error) {
	k.planning.Lock()
	defer k.planning.Unlock()
	return registration.Plan(s, cluster, o)
}

// refreshFamilies reads the resources that the cluster serves. Known families stay if the cluster does not answer, or has no memory for its answer.
func (e *entries) refreshFamilies(ctx context.Context) error {
	families, booked, err := e.k.askForFamilies(ctx, e)
	if families == nil && e.families == nil {
		return err
	}
	if families != nil {
		e.booked.Release()
		e.families, e.booked = families, booked
	}
	e.readFamilies(time.Now())
	return nil
}

// askForFamilies returns families with a reservation for them. If a part of the cluster does not answer, there is an error beside them.
func (k *Keeper) askForFamilies(ctx context.Context, e *entries) (families registration.Families, booked *memory.Reservation, err error) {
	if k.o.Memory != nil {
		if booked, err = k.o.Memory.Reserve(e.cluster, 0); err != nil {
			return nil, nil, fmt.Errorf("discovery: %w", err)
		}
		ctx = answers.Booked(ctx, booked)
	}
	if families, err = registrar.Families(ctx, e.config, e.client); families == nil {
		booked.Release()
		return nil, nil, err
	}
	booked.Shrink(booked.Bytes() - bytesOf(families))
	return families, booked, err
}

// wayBytes is the memory of a way to a resource without its texts.
const wayBytes = 256

// bytesOf is the memory of families, in bytes. It is less than reading them takes.
func bytesOf(families registration.Families) (n int64) {
	for _, ways := range families {
		for _, w := range ways {
			n += wayBytes + int64(len(w.Resource.Group)+len(w.Resource.Version)+len(w.Resource.Resource)+len(w.Subresource)+
				len(w.Kind.Group)+len(w.Kind.Version)+len(w.Kind.Kind))
		}
	}
	return n
}

// note records an attempt, and logs changes.
func (e *entries) note(now Generation, o outcome) {
	e.k.attempts.WithLabelValues(e.cluster, o.result).Inc()
	s := State{Cluster: e.cluster, Leads: o.leads, InSync: o.err == nil && o.result != resultBehind, Err: o.err, At: time.Now()}
	s.planned = e.planned
	if o.err == nil {
		e.warnOfWider(o.changes)
	}
	s.Wider = e.wider
	if now.Snapshot != nil {
		s.Digest = now.Snapshot.Revision()
		if o.result != resultUnchanged || !e.planned.settled() { // else the entries were made from all hooks, also from hooks that need none
			s.lacking = e.planned.lacking(now.Snapshot, e.cluster)
		}
	}
	e.k.clusters.SetState(e.cluster, s)
	if o.leads {
		for _, c := range o.changes {
			if c.Action != registrar.Unchanged {
				e.log.Info("the entries of the cluster were written", "object", c.Object, "action", string(c.Action), "revision", s.Digest)
			}
		}
	}
	e.warnOfBreakGlass(o, s.At)
}

// warnOfWider logs that the API server does not keep the conditions of entries, when that is seen first.
func (e *entries) warnOfWider(changes []registrar.Diff) {
	var wider []string
	for i := range changes {
		warning := changes[i].Warning()
		if warning == "" {
			continue
		}
		if wider = append(wider, warning); !slices.Contains(e.wider, warning) {
			e.log.Warn("the entries of the cluster are wider than planned", "warning", warning)
		}
	}
	e.wider = wider
}

// warnOfBreakGlass logs a break-glass in the cluster when it is seen first, each minute, and when an attempt sees that it has ended.
func (e *entries) warnOfBreakGlass(o outcome, now time.Time) {
	switch {
	case o.result == resultBreakGlass && now.Sub(e.warned) >= breakGlassInterval:
		e.warned = now
		e.log.Warn("break-glass: the cluster does not call the mesh, and no hook judges its writes", "error", o.err)
	case o.err == nil && !e.warned.IsZero():
		e.warned = time.Time{}
		e.log.Warn("the break-glass in the cluster has ended: its entries are kept again")
	}
}

func documentOf(clusters []*kinds.Cluster, name string) *kinds.Cluster {
	for _, c := range clusters {
		if c.Metadata.Name == name && c.Spec.Registration != nil {
			return c
		}
	}
	return nil
}

func nameOf(r *kinds.Registration) string { return cmp.Or(r.Name, registration.DefaultName) }
