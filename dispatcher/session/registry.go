// Package session serves the streams that hosts dialled. A [Session] is one live stream: a pure state in the lock of a
// thin shell with one reader and one writer. The [Registry] knows all of them, picks one for each call, retries what may
// be retried, and lets calls wait for a free replica, bounded in number and time. The [Server] is the gRPC edge.
//
// Default deny: a host serves a hook only if a HookRoute grants it to the identity of its certificate, whatever it
// offers.
package session

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ErrClosed is the error of sessions that come after the registry began to drain.
var ErrClosed = errors.New("session: closed")

// Options is what a registry works with. The zero value is usable.
type Options struct {
	// ID names this dispatcher to hosts, unique per process start; empty means a random one.
	ID string
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Logger gets sessions that come and go; nil means nowhere.
	Logger *slog.Logger
}

// Registry holds the sessions of one dispatcher and carries calls to them. It is a [dispatcher.Backend], and safe for
// concurrent use. [Registry.Run] must be running for silence and waiting calls to be looked at.
type Registry struct {
	id     string
	log    *slog.Logger
	seeing *instrumentation
	view   atomic.Pointer[view]
	queued atomic.Int64 // calls that wait, in all pools

	mu       sync.Mutex // sessions, draining, and every change of the view and of pools' sessions
	sessions map[string]*Session
	draining bool
}

var _ dispatcher.Backend = (*Registry)(nil)

// New makes a registry without hooks.
func New(o Options) (*Registry, error) {
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{id: o.ID, log: o.Logger, sessions: make(map[string]*Session)}
	r.view.Store(newView(""))
	var err error
	r.seeing, err = newInstrumentation(o.Metrics, r)
	return r, err
}

// Run looks after silence and waiting calls until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			for _, s := range r.all() {
				s.tick(now)
			}
			for _, p := range r.view.Load().pools {
				p.expire(now)
				p.drain(now) // a silent session may be good enough by now
			}
			if r.view.Load().expired(now) {
				r.forgetRemoved()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// all are the sessions at this moment.
func (r *Registry) all() []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, s)
	}
	return out
}

// Start implements [dispatcher.Backend].
func (r *Registry) Start(ctx context.Context, b *dispatcher.Batch, done func(int, review.Result)) func(int) {
	now, parent, v := time.Now(), trace.SpanContextFromContext(ctx), r.view.Load()
	tickets := make([]ticket, len(b.Calls))
	todo := make([]*ticket, len(b.Calls))
	body := newBody(b)
	var twice *hedges
	for i := range tickets {
		t := &tickets[i]
		t.batch, t.body, t.index, t.done, t.begun, t.parent = b, body, i, done, now, parent
		t.pool = v.pools[t.call().Hook.ID]
		twice = r.hedge(twice, t)
		todo[i] = t
	}
	r.place(todo)
	if twice != nil {
		twice.arm()
	}
	return func(i int) { tickets[i].cancel() }
}

// place hands tickets of one batch to sessions: what one session can serve goes there as one frame. What finds no room
// waits.
func (r *Registry) place(todo []*ticket) {
	for len(todo) > 0 {
		t := todo[0]
		p := t.pool
		if p == nil {
			t.finish(review.Result{Failure: notStarted(review.FailureUnavailable, "no route grants the hook to a host")})
			todo = todo[1:]
			continue
		}
		var s *Session
		if p.waits.Load() == 0 { // who waits comes first
			s = p.pick(t, time.Now())
		}
		if s == nil {
			r.wait(p, t)
			todo = todo[1:]
			continue
		}
		n := s.submit(todo[:gather(todo, s)])
		if n == 0 { // the last slot went to somebody else just now
			r.wait(p, t)
			todo = todo[1:]
			continue
		}
		for _, t := range todo[:n] {
			if t.ended.Load() { // cancelled before it had a seat
				t.leave()
			}
		}
		todo = todo[n:]
	}
}

// gather puts the tickets that a session serves in front of the others, and returns how many they are. The first one is
// served.
func gather(todo []*ticket, s *Session) int {
	n, pools := 1, *s.pools.Load()
	for i := 1; i < len(todo); i++ {
		t := todo[i]
		if pools[t.call().Hook.ID] != nil && !t.tried(s) {
			todo[n], todo[i] = t, todo[n]
			n++
		}
	}
	return n
}

// wait lets a ticket wait for a free replica, or fails it at once.
func (r *Registry) wait(p *pool, t *ticket) {
	now := time.Now()
	first, why := p.wait(t, now)
	switch {
	case why != nil:
		t.finish(review.Result{Failure: why})
	case first: // a slot may have become free in between; who waits behind others is found by who frees one
		p.drain(now)
	}
}

// settle ends a call, or hands it to another replica.
func (r *Registry) settle(s *Session, t *ticket, result review.Result) {
	result.Timing.Instance = s.hello.GetInstance()
	f := result.Failure
	if f == nil || !t.again(f, time.Now()) {
		t.finish(result)
		return
	}
	t.failedOn(s)
	r.seeing.retries.Inc()
	r.place([]*ticket{t})
}

// freed lets calls that wait have the slots that became free.
func (r *Registry) freed(s *Session) {
	if r.queued.Load() == 0 {
		return
	}
	for _, p := range *s.pools.Load() {
		if s.room.Load() == 0 {
			return
		}
		p.drainTo(s)
	}
}

// Update makes the hooks of a snapshot known, before it comes into force. Calls in flight finish, and hooks that it does not
// have any more are served for MaxReview, by who was granted them. Snapshots have to come in the order in which they come
// into force.
func (r *Registry) Update(snapshot *match.Snapshot) {
	r.replace(func(old *view, now time.Time) *view {
		next := newView(snapshot.Revision())
		for _, h := range snapshot.Hooks() {
			if !h.Route.Stream {
				continue
			}
			p := old.pools[h.ID]
			if p == nil {
				p = newPool(r, now)
			}
			p.configure(h)
			next.add(h.ID, p)
		}
		next.inherit(old, now)
		return next
	})
}

// forgetRemoved lets go of the hooks that no review can call any more.
func (r *Registry) forgetRemoved() {
	r.replace(func(old *view, now time.Time) *view {
		next := newView(old.revision)
		for id, p := range old.pools {
			if _, removed := old.removed[id]; !removed {
				next.add(id, p)
			}
		}
		next.inherit(old, now)
		return next
	})
}

// replace puts another view in place, and tells sessions, calls and hosts.
func (r *Registry) replace(with func(old *view, now time.Time) *view) {
	r.mu.Lock()
	now, old := time.Now(), r.view.Load()
	next := with(old, now)
	r.view.Store(next)
	members := make(map[*pool][]*Session)
	sessions := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
		for _, p := range r.assign(s, next) {
			members[p] = append(members[p], s)
		}
	}
	for _, p := range next.pools {
		p.set(members[p], now)
	}
	r.mu.Unlock()
	for id, p := range old.pools {
		if next.pools[id] == nil {
			p.abandon()
		}
	}
	for _, p := range next.pools {
		p.drain(time.Now())
	}
	for _, s := range sessions {
		r.announce(s)
	}
}

// assign says which pools a session belongs to. The registry's lock is held.
func (r *Registry) assign(s *Session, v *view) []*pool {
	mine := make(map[match.HookID]*pool)
	var out []*pool
	for _, o := range s.hello.GetHooks() {
		for _, p := range v.byOffer[offer{o.GetName(), int32(o.GetStage())}] {
			h := p.hook.Load()
			if slices.Contains(h.Route.Hosts, s.identity) && mine[h.ID] == nil {
				mine[h.ID] = p
				out = append(out, p)
			}
		}
	}
	s.pools.Store(&mine)
	return out
}

// states are the states of the hooks that a session offers.
func (r *Registry) states(s *Session) []*hostv1.HookState {
	v, mine := r.view.Load(), *s.pools.Load()
	out := make([]*hostv1.HookState, 0, len(s.hello.GetHooks()))
	for _, o := range s.hello.GetHooks() {
		state := &hostv1.HookState{Name: o.GetName(), Stage: o.GetStage(), Revision: v.revision}
		pools := v.offered(offer{o.GetName(), int32(o.GetStage())})
		granted := slices.ContainsFunc(pools, func(p *pool) bool { return mine[p.hook.Load().ID] != nil })
		switch {
		case len(pools) == 0:
			state.State = hostv1.State_STATE_UNKNOWN_HOOK
			state.Message = "no configuration has a webhook of this name and stage with a HookRoute that says stream"
		case !granted:
			state.State = hostv1.State_STATE_NOT_AUTHORIZED
			state.Message = "no HookRoute lists identity " + s.identity + " in spec.hosts"
		default:
			state.State = hostv1.State_STATE_IN_ROTATION
		}
		out = append(out, state)
	}
	return out
}

// welcome is the first frame for a host.
func (r *Registry) welcome(s *Session) *hostv1.ConnectResponse {
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: &hostv1.Welcome{
		SessionId:       s.id,
		DispatcherId:    r.id,
		Protocol:        Protocol,
		Revision:        r.view.Load().revision,
		Hooks:           r.states(s),
		PingIntervalMs:  millis(PingInterval),
		SilenceMs:       millis(HostSilence),
		MaxVerdictBytes: MaxVerdictBytes,
		Capabilities:    []string{capabilityBatches},
	}}}
}

// announce tells a host how its hooks stand.
func (r *Registry) announce(s *Session) {
	for _, state := range r.states(s) {
		s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: state}})
	}
}

// join takes a session in. A second one of the same instance replaces the first, whose calls finish where they are.
func (r *Registry) join(s *Session) error {
	r.mu.Lock()
	if r.draining {
		r.mu.Unlock()
		return ErrClosed
	}
	var replaced []*Session
	for _, other := range r.sessions {
		if other.hello.GetInstance() == s.hello.GetInstance() && other.identity == s.identity {
			replaced = append(replaced, other)
		}
	}
	if len(r.sessions)-len(replaced) >= MaxSessions {
		r.mu.Unlock()
		return errTooMany
	}
	r.sessions[s.id] = s
	pools := r.assign(s, r.view.Load())
	s.send(r.welcome(s))
	for _, p := range pools {
		p.add(s)
	}
	for _, other := range replaced {
		r.unpool(other, time.Now())
	}
	r.mu.Unlock()
	for _, other := range replaced {
		other.replaced()
	}
	for _, p := range pools {
		p.drain(time.Now())
	}
	return nil
}

// leave lets a session go.
func (r *Registry) leave(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s.id)
	r.unpool(s, time.Now())
}

// unpool takes a session out of its pools. The registry's lock is held.
func (r *Registry) unpool(s *Session, now time.Time) {
	for _, p := range *s.pools.Load() {
		p.remove(s, now)
	}
}

// Ready reports whether every hook that is served over streams has a session, and the names of those that have none. Nobody
// waits for hooks in shadow, which decide nothing.
func (r *Registry) Ready() (missing []string) {
	v := r.view.Load()
	for id, p := range v.pools {
		if _, removed := v.removed[id]; !removed && len(*p.sessions.Load()) == 0 && !p.hook.Load().Route.Shadow {
			missing = append(missing, id.Configuration+"/"+id.Name)
		}
	}
	slices.Sort(missing)
	return missing
}

// Drain tells every host that this dispatcher is leaving, lets calls in flight finish, and ends the sessions. It returns
// when none is left or ctx ends; [Registry.Run] has to be running.
func (r *Registry) Drain(ctx context.Context, grace time.Duration) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	now := time.Now()
	for _, s := range r.all() {
		s.step(func(st *state) { st.drain(now.Add(grace), now, errDispClose, nil) })
	}
	t := time.NewTicker(tick)
	defer t.Stop()
	for len(r.all()) > 0 {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// two picks two different indexes below n, which is at least 2.
func two(n int) (int, int) {
	a, b := rand.IntN(n), rand.IntN(n-1)
	if b >= a {
		b++
	}
	return a, b
}
