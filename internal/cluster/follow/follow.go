// Package follow has the mesh call webhooks that others configure in a cluster: cert-manager, Istio and Kyverno write their own
// webhook configurations and renew them. A Cluster selects them by label (spec.follow). Each is copied into the configuration of the
// mesh, restricted to its cluster, and once all dispatchers judge by the copy and the entries of the cluster cover it, the original is
// switched off, so that it is not called a second time.
//
// An original is switched off by one matchCondition in each of its webhooks. Nothing else in it changes: its owner goes on to write
// it, and the mesh to copy it. Where knowledge is missing the original is on: a hook is called twice then, never not at all.
//
// [situation.next] is the pure part: it decides on the next step for one original. One dispatcher, which holds a lease in the cluster,
// takes the steps. Each cluster has goroutines of its own, so a cluster that does not answer delays no other.
package follow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Times.
const (
	// SettleTime is how long, without Options.Lag, an original has to be on before its copy is removed: each API server of the cluster has to
	// know by then.
	SettleTime = settleLags * touch.Delay
	// settleLags is how often the lag of an API server goes into that time.
	settleLags = 2
	// FirstHold and MaxHold are how long an original stays on whose owner has switched it on twice in a row, or more often. An original
	// that stays off for longer than MaxHold begins anew.
	FirstHold = time.Second
	MaxHold   = 5 * time.Minute
	// RetryInterval is when an object that was refused is tried again although it has not changed.
	RetryInterval = 30 * time.Second

	roundInterval = time.Second     // between two looks at an unchanged cluster
	failurePause  = 5 * time.Second // after a step that failed
	stepTimeout   = 10 * time.Second
	reachTimeout  = 5 * time.Second
)

// Options configure a Manager. All but Memory, Mesh, Lag and Logger are required.
type Options struct {
	// ID names this dispatcher in the leases.
	ID string
	// Documents returns the Cluster documents in force, and the clusters that have copies.
	Documents func() (clusters []*kinds.Cluster, copies map[string]bool)
	// Next names the configuration in force, and returns a channel that is closed when there may be another one. It is cheap.
	Next func() (revision string, next <-chan struct{})
	// API returns the way to the API server of a cluster. The client stays the callee's.
	API func(ctx context.Context, cluster string) (*rest.Config, *http.Client, error)
	// Lists returns a client for lists of a cluster, whose answers are read with [answers.Items].
	Lists func(ctx context.Context, cluster string) (rest.Interface, error)
	// Memory is where the webhook configurations are booked that are kept, to their cluster; nil books nothing.
	Memory *memory.Ledger
	// Mesh takes the copies; nil if the configuration has no source that can be written. Nothing is followed then.
	Mesh Mesh
	// Lag is how long an API server takes at most to obey a change of a webhook configuration, which is written once more then; 0 is
	// touch.Delay.
	Lag time.Duration
	// Metrics receives the collectors.
	Metrics prometheus.Registerer
	// Logger receives steps and failures; nil logs nothing.
	Logger *slog.Logger
}

// ClusterStatus is how far the objects of a cluster are followed, as its leader knows it.
type ClusterStatus struct {
	// Cluster names it.
	Cluster string
	// Objects are the objects that spec.follow selects, or that still have a copy.
	Objects []ObjectStatus
	// Error is why nothing is followed; empty if objects are.
	Error string
}

// Manager follows the objects of all clusters. Its methods may be called concurrently; Run is called once.
type Manager struct {
	o       Options
	objects *prometheus.GaugeVec

	clusters *reconcile.Clusters[task, ClusterStatus]
}

// New returns a manager. It does no I/O.
func New(o Options) (*Manager, error) {
	if o.ID == "" || o.Documents == nil || o.Next == nil || o.API == nil || o.Lists == nil || o.Metrics == nil {
		return nil, errors.New("follow: all options but the memory, the mesh, the lag and the logger are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	m := &Manager{o: o, objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portcullis_followed_objects",
		Help: "Webhook configurations of a cluster that spec.follow selects, by state, as the dispatcher that follows them knows it.",
	}, []string{"cluster", "state"})}
	m.clusters = reconcile.NewClusters[task, ClusterStatus](m.follow)
	return m, o.Metrics.Register(m.objects)
}

// Statuses are the statuses of the clusters whose objects this dispatcher follows, by name.
func (m *Manager) Statuses() []ClusterStatus { return m.clusters.States() }

func (m *Manager) publish(s ClusterStatus) {
	m.clusters.SetState(s.Cluster, s)
	counts := map[State]int{}
	for _, o := range s.Objects {
		counts[o.State]++
	}
	for _, state := range []State{Followed, Waiting, Refused, Failed} {
		m.objects.WithLabelValues(s.Cluster, string(state)).Set(float64(counts[state]))
	}
}

func (m *Manager) forget(cluster string) {
	m.clusters.Forget(cluster)
	m.objects.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
}

// task has the parameters of following in one cluster.
type task struct {
	kubeconfig string
	follow     *kinds.Follow // nil if the originals are given back
}

// Run follows until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	lost, last, all := map[string]bool{}, "", map[string]task(nil)
	m.clusters.Run(ctx, func() (map[string]task, <-chan struct{}) {
		revision, next := m.o.Next()
		if revision != last {
			clusters, copies := m.o.Documents()
			all = wanted(clusters, copies)
			m.warnOfLost(lost, copies, all)
			last = revision
		}
		return all, next
	})
	return nil
}

// wanted are the tasks that documents ask for. A cluster that is not followed any more has one for as long as there are copies: it gives
// the originals back.
func wanted(clusters []*kinds.Cluster, copies map[string]bool) map[string]task {
	all := map[string]task{}
	for _, c := range clusters {
		if c.Spec.Kubeconfig != "" && (c.Spec.Follow != nil || copies[c.Metadata.Name]) {
			all[c.Metadata.Name] = task{kubeconfig: c.Spec.Kubeconfig, follow: c.Spec.Follow}
		}
	}
	return all
}

// warnOfLost logs each cluster with copies that no document gives the way to, once until it has one. lost are those that were logged.
func (m *Manager) warnOfLost(lost, copies map[string]bool, tasks map[string]task) {
	for cluster := range copies {
		_, found := tasks[cluster]
		if !found && !lost[cluster] {
			m.o.Logger.Warn("followed webhook configurations cannot be switched on: the Cluster document, or its spec.kubeconfig, is gone",
				"cluster", cluster, "remedy", "apply the document again, and run `portcullis cluster unregister "+cluster+" --remove-document`")
		}
		lost[cluster] = !found
	}
	maps.DeleteFunc(lost, func(cluster string, _ bool) bool { return !copies[cluster] })
}

// selector selects nothing in a cluster that is not followed.
func (t *task) selector() labels.Selector {
	if t.follow == nil {
		return labels.Nothing()
	}
	return t.follow.Labels()
}

// follow follows the objects of one cluster until ctx ends.
func (m *Manager) follow(ctx context.Context, cluster string, t task) {
	defer m.forget(cluster)
	log := m.o.Logger.With("cluster", cluster)
	if m.o.Mesh == nil {
		m.publish(ClusterStatus{Cluster: cluster, Error: "spec.follow needs a store (serve --data-dir or --etcd) " +
			"or custom resources (serve --config-custom-resources), where the copies are written"})
		log.Warn("nothing is followed: there are neither a store nor custom resources to write the copies to")
		<-ctx.Done()
		return
	}
	w := &worker{m: m, cluster: cluster, task: t, log: log, changed: make(chan struct{}, 1)}
	w.lease = reconcile.NewCandidate(m.o.ID, reconcile.FollowLease(), log)
	defer w.endTerm()
	loop := reconcile.Loop{
		Lease: w.lease, Configuration: func() (any, <-chan struct{}) { _, next := m.o.Next(); return next, next }, Wake: w.changed,
		Reconcile: w.reconcile, Failed: func(err error) { log.Warn("nothing is followed for now", "error", err) },
	}
	loop.Run(ctx)
}

// worker follows the objects of one cluster, while this dispatcher holds the lease. One goroutine uses it.
type worker struct {
	m       *Manager
	cluster string
	task    task
	log     *slog.Logger
	lease   *reconcile.Candidate
	changed chan struct{} // holds one token after a change in the cluster, and after an answer about an address

	client *http.Client // of the fields below
	term   *term        // nil while another dispatcher follows
	quiet  mark         // of the last round, if it left nothing to do
	failed bool         // the last round
}

// mark names a state of a cluster and of the configuration. The zero mark names none.
type mark struct {
	version  int
	revision string
}

// term is the time in which this dispatcher follows, over one client.
type term struct {
	seen     *seen
	follower *follower
	stop     context.CancelFunc
	watching sync.WaitGroup
}

func (t *term) end() {
	t.stop()
	t.watching.Wait()
	t.follower.reach.wait.Wait()
}

// work does one round, if this dispatcher leads.
func (w *worker) work(ctx context.Context) error {
	connect, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	config, client, err := w.m.o.API(connect, w.cluster)
	if err != nil {
		return err
	}
	err = w.lease.Campaign(ctx, config, client)
	if w.term != nil && (client != w.client || !w.lease.Leads()) {
		w.endTerm()
		w.m.forget(w.cluster)
	}
	if err != nil {
		return err
	}
	if !w.lease.Leads() {
		return nil
	}
	if w.term == nil {
		if w.term, err = w.begin(ctx, config, client); err != nil {
			return err
		}
		w.client, w.quiet = client, mark{}
	}
	now := mark{version: w.term.seen.changes()}
	if now.revision, _ = w.m.o.Next(); now == w.quiet {
		return nil
	}
	w.quiet = mark{}
	if listed, err := w.term.seen.listed(); err != nil || !listed {
		return err
	}
	live, fresh, err := w.m.o.Mesh.Live(connect)
	if err != nil || !fresh {
		return err
	}
	objects := w.term.seen.all(w.term.follower.tracked(&live))
	statuses := w.term.follower.round(ctx, w.task.selector(), objects, live)
	w.m.publish(ClusterStatus{Cluster: w.cluster, Objects: statuses})
	if !w.term.follower.pending && !slices.ContainsFunc(statuses, func(s ObjectStatus) bool { return s.State != Followed }) {
		w.quiet = now
	}
	return nil
}

func (w *worker) begin(ctx context.Context, restConfig *rest.Config, client *http.Client) (*term, error) {
	lists, err := w.m.o.Lists(ctx, w.cluster)
	if err != nil {
		return nil, err
	}
	of := source{config: restConfig, client: client, lists: lists, reserve: func() (*memory.Reservation, error) {
		if w.m.o.Memory == nil {
			return nil, nil //nolint:nilnil // a nil reservation books nothing
		}
		return w.m.o.Memory.Reserve(w.cluster, 0)
	}}
	seen, err := newSeen(of, w.cluster, w.task.selector(), w.changed)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, c *admissionregistrationv1.WebhookClientConfig) error {
		return w.m.o.Mesh.Reach(ctx, w.cluster, c)
	}
	ctx, stop := context.WithCancel(ctx)
	t := &term{seen: seen, stop: stop, follower: &follower{
		cluster: w.cluster, follow: w.task.follow, mesh: w.m.o.Mesh, client: seen.client, log: w.log, now: time.Now, leads: w.lease.Leads,
		lag: w.m.o.Lag, objects: map[config.Key]*followed{},
		reach: &reach{ask: ask, now: time.Now, changed: w.changed, checks: map[config.Key]*check{}},
	}}
	t.watching.Go(func() { seen.watch(ctx) })
	return t, nil
}

func (w *worker) endTerm() {
	if w.term != nil {
		w.term.end()
		w.term = nil
	}
}

// reconcile does one round, and shows why it failed.
func (w *worker) reconcile(ctx context.Context) (time.Duration, error) {
	err := w.work(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.m.publish(ClusterStatus{Cluster: w.cluster, Error: err.Error()})
	case w.failed && w.term == nil:
		w.m.forget(w.cluster)
	}
	w.failed = err != nil
	return roundInterval, err
}
