package keeper

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/leader"
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
	// familiesAge is the age at which the resources of the cluster are read again.
	familiesAge = time.Minute
)

// errStale is the error while the configuration is stale: entries are made from a fresh one only.
var errStale = errors.New("the configuration of this dispatcher is stale")

// entries reconciles the entries of one cluster. One goroutine uses it.
type entries struct {
	k        *Keeper
	cluster  string
	log      *slog.Logger
	lease    *leader.Candidate
	client   *http.Client // of to
	to       *registrar.Registrar
	families registration.Families
	asked    time.Time          // for families
	seen     string             // versions of the objects, digest of the configuration, bundle, and capability, of the last plan that wrote nothing
	wanted   []registrar.Change // by that plan, without the objects
	again    registrar.Again
	pending  bool // whether they are still to be written once more
	rotation rotation
	planned  planned
	failure  string    // of the last attempt, so that each is logged once
	wider    []string  // warnings of the last attempt that has compared the entries, of which each is logged once
	warned   time.Time // when a break-glass was logged last; zero without one
}

// keep compares and writes until ctx ends.
func (k *Keeper) keep(ctx context.Context, cluster string, t task) {
	log := k.o.Logger.With("cluster", cluster)
	e := &entries{
		k: k, cluster: cluster, log: log, lease: leader.New(k.o.ID, leader.EntriesPrefix+nameOf(&t.registration), log),
		again: registrar.Again{Cluster: cluster, Delay: k.o.Lag}, planned: planned{settle: settleLags * k.o.Lag},
	}
	defer e.lease.End()
	defer k.forget(cluster)
	k.attempts.WithLabelValues(cluster, resultFailed)
	k.attempts.WithLabelValues(cluster, resultBreakGlass)
	for {
		now := k.o.Generation()
		o := e.attempt(ctx, now)
		e.note(now, o)
		wait := jittered(intervalLags * k.o.Lag)
		if o.result == resultBehind || o.result == resultChanged || e.pending || !e.planned.settled() {
			wait = soon
		}
		if !e.await(ctx, now, wait) {
			return
		}
	}
}

// jittered is a duration between 3/4 of d and d, so that dispatchers that have started together do not ask together.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/4) }

// await waits for a reason for another attempt: a new configuration, a change of its freshness, another leader, or the interval. It returns
// false when ctx has ended.
func (e *entries) await(ctx context.Context, done Generation, most time.Duration) bool {
	interval := time.NewTimer(most)
	defer interval.Stop()
	for now := done; now.Snapshot == done.Snapshot && now.Fresh == done.Fresh; now = e.k.o.Generation() {
		select {
		case <-now.Next:
		case <-e.lease.Changed():
			return true
		case <-interval.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// outcome is how an attempt ended.
type outcome struct {
	result  string
	leads   bool // whether this dispatcher held the lease when the attempt began
	changes []registrar.Change
	err     error
}

// attempt compares the entries with a configuration, and writes them if this dispatcher leads.
func (e *entries) attempt(ctx context.Context, now Generation) outcome {
	o := outcome{result: resultUnchanged, leads: e.lease.Leads()} // asked once: a dry run is a dry run to its end
	o.changes, o.err = e.compare(ctx, now, !o.leads)
	o.err = e.rotation.explain(o.err)
	switch {
	case errors.Is(o.err, registrar.ErrBreakGlass):
		o.result = resultBreakGlass
	case o.err != nil:
		o.result = resultFailed
	case !unchanged(o.changes) && o.leads:
		o.result = resultChanged
	case !unchanged(o.changes):
		o.result = resultBehind
	}
	return o
}

func (e *entries) compare(ctx context.Context, now Generation, dryRun bool) ([]registrar.Change, error) {
	document := documentOf(now.Clusters, e.cluster)
	if !now.Fresh || document == nil {
		return nil, errStale
	}
	keys := e.k.o.CapabilityKeys()
	bundle, err := bundleOf(document.Spec.Registration)
	if err == nil {
		err = e.rotation.check(document, keys)
	}
	if err != nil {
		e.lease.End() // another dispatcher may have the file
		return nil, err
	}
	life := ctx
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	config, client, err := e.k.o.API(ctx, e.cluster)
	if err != nil {
		return nil, err
	}
	if err := e.lease.Campaign(life, config, client); err != nil {
		return nil, err
	}
	if client != e.client {
		if e.to, err = registrar.NewWithClient(config, client); err != nil {
			return nil, err
		}
		e.client = client
	}
	mutating, validating, err := e.read(ctx, nameOf(document.Spec.Registration), dryRun)
	if err == nil {
		err = registrar.CheckBreakGlass(mutating, validating) // first: entries that are empty may have other errors
	}
	if err != nil {
		return nil, err
	}
	if err := e.refreshFamilies(ctx, config, client); err != nil {
		return nil, err
	}
	options, err := e.optionsFor(document, shownBy{registration.Shown(mutating, validating), mutating != nil || validating != nil, !dryRun}, time.Now())
	if err != nil {
		return nil, err
	}
	seen := now.Snapshot.Revision() + version(mutating == nil, mutating) + version(validating == nil, validating) +
		fmt.Sprintf("/%x/%x", sha256.Sum256(bundle), options.Capability.Sum())
	if seen == e.seen && (dryRun || unchanged(e.wanted)) {
		return e.wanted, nil
	}
	options.Equivalents, options.CABundle = e.families, bundle
	plan, err := e.k.plan(now.Snapshot, e.cluster, options)
	if err != nil {
		return nil, err
	}
	changes, err := e.to.Apply(ctx, plan, dryRun)
	if err == nil && (dryRun || unchanged(changes)) {
		e.seen, e.wanted = seen, nil
		for _, c := range changes {
			e.wanted = append(e.wanted, registrar.Change{Object: c.Object, Action: c.Action, WithoutConditions: c.WithoutConditions})
		}
	}
	return changes, err
}

// plan plans the entries of one cluster at a time.
func (k *Keeper) plan(s *match.Snapshot, cluster string, o registration.Options) (*registration.Registration, error) {
	k.planning.Lock()
	defer k.planning.Unlock()
	return registration.Plan(s, cluster, o)
}

// read reads the objects of a name, and writes them once more if it is time, unless dryRun is given.
func (e *entries) read(ctx context.Context, name string, dryRun bool) (
	*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error,
) {
	m, v, err := e.to.Read(ctx, name)
	e.pending = false
	if err != nil {
		return nil, nil, err
	}
	e.planned.see(e.cluster, m, v, time.Now())
	if !dryRun {
		e.pending, err = e.to.WriteAgain(ctx, m, v, &e.again, time.Now())
	}
	return m, v, err
}

// version identifies the state of an object.
func version(absent bool, o metav1.Object) string {
	if absent {
		return "/absent"
	}
	return fmt.Sprintf("/%s %s", o.GetUID(), o.GetResourceVersion())
}

func unchanged(changes []registrar.Change) bool {
	for _, c := range changes {
		if c.Action != registrar.Unchanged {
			return false
		}
	}
	return true
}

// refreshFamilies reads the resources that the cluster serves, once per familiesAge. Known families stay if the cluster does not answer.
func (e *entries) refreshFamilies(ctx context.Context, config *rest.Config, client *http.Client) error {
	if e.families != nil && time.Since(e.asked) < familiesAge {
		return nil
	}
	families, err := registrar.Families(ctx, config, client)
	if families == nil && e.families == nil {
		return err
	}
	if families != nil {
		e.families = families
	}
	e.asked, e.seen = time.Now(), "" // they may have changed the plan
	return nil
}

// note records an attempt. It logs changes, and a failure once.
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
	e.k.set(s)
	if o.leads {
		for _, c := range o.changes {
			if c.Action != registrar.Unchanged {
				e.log.Info("the entries of the cluster were written", "object", c.Object, "action", string(c.Action), "revision", s.Digest)
			}
		}
	}
	e.warnOfBreakGlass(o, s.At)
	failure := ""
	if o.err != nil && o.result != resultBreakGlass {
		failure = o.err.Error()
	}
	if failure != "" && failure != e.failure {
		e.log.Warn("the entries of the cluster are not kept", "error", failure)
	}
	e.failure = failure
}

// warnOfWider logs that the API server does not keep the conditions of entries, when that is seen first.
func (e *entries) warnOfWider(changes []registrar.Change) {
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

// optionsFor are the options of a document.
func (e *entries) optionsFor(c *kinds.Cluster, by shownBy, now time.Time) (registration.Options, error) {
	r := c.Spec.Registration
	o := registration.Options{Name: r.Name, URL: r.URL, OwnNamespace: r.OwnNamespace}
	o.Budget.Mutate, o.Budget.Reinvoke, o.Budget.Validate = r.Timeouts()
	var err error
	o.Capability, err = e.capabilityFor(c, by, now)
	return o, err
}
