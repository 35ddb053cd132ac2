package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// codePending is the code of a finding: the applied hook is not called yet.
const codePending = "pending"

const (
	// maxRotated bounds the objects that one rotation changes: etcd's default limit of a transaction is 128 operations.
	maxRotated = 100
	// rotator is the actor of rotations in the history.
	rotator = "portcullis"
)

// Ready is a hook that a host is ready to serve.
type Ready struct {
	// Key is the configuration.
	Key config.Key
	// Hook is the name of the hook.
	Hook string
	// Host is the identity of the host.
	Host string
}

// Rotate puts hooks in rotation, permanently; hooks that are not pending stay as they are. Several dispatchers may call it at
// the same time and repeatedly. Hooks that exceed one transaction are left for the next call. An error is a gRPC status; the
// caller tries again later.
func (s *Service) Rotate(ctx context.Context, ready []Ready) error {
	_, err := s.change(ctx, "rotate", false, func(st *storedState) (*edit, error) {
		return st.rotation(ready, s.now().UTC()), nil
	})
	return err
}

// rotation returns the edit that puts hooks in rotation; an empty one if none of them is pending. The generations of the
// objects do not change.
func (st *storedState) rotation(ready []Ready, now time.Time) *edit {
	e := st.newEdit(rotator, now)
	for _, x := range ready {
		r, edited := e.record(x.Key), e.index(x.Key) >= 0
		if r == nil || r.Removing || !slices.Contains(r.Pending, x.Hook) || !edited && len(e.Put) == maxRotated {
			continue
		}
		next := *r
		next.Pending = slices.DeleteFunc(slices.Clone(r.Pending), func(name string) bool { return name == x.Hook })
		action := fmt.Sprintf("put hook %q of %s in rotation: %s is ready", x.Hook, x.Key, x.Host)
		if edited {
			e.Change.Actions = append(e.Change.Actions, action)
		}
		e.put(&next, action)
	}
	return e
}

// probedHooks returns the sorted names of the hooks that wait for the answer to a probe, by configuration: hooks that are
// served over streams, unless their route is Immediate.
func probedHooks(snapshot *match.Snapshot) map[config.Key][]string {
	out := map[config.Key][]string{}
	for _, h := range snapshot.Hooks() {
		key := config.KeyOf(h)
		if h.Route.Stream && !h.Route.Immediate && !slices.Contains(out[key], h.ID.Name) {
			out[key] = append(out[key], h.ID.Name)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// pendingOf returns the probed hooks of a configuration that are pending: the new ones, and those that were. If it is unknown
// whether a hook is new, the hook is in rotation.
func (st *storedState) pendingOf(key config.Key, probed []string) []string {
	old := st.state.Records[key]
	before, known := st.objects[key]
	return slices.DeleteFunc(slices.Clone(probed), func(name string) bool {
		if old == nil || slices.Contains(old.Pending, name) {
			return false
		}
		return !known || slices.ContainsFunc(before.Webhooks(), func(w config.Webhook) bool { return w.Name == name })
	})
}

func (st *storedState) withPending() map[config.Key]bool {
	out := map[config.Key]bool{}
	for key, r := range st.state.Records {
		if len(r.Pending) > 0 && !r.Removing {
			out[key] = true
		}
	}
	return out
}

// updatePending writes which hooks of some configurations are pending by a snapshot of all objects. It adds new hooks, and
// removes those that do not wait for a probe any more, since a stale mark could take effect again later.
func (e *edit) updatePending(st *storedState, configurations map[config.Key]bool, snapshot *match.Snapshot) {
	if len(configurations) == 0 {
		return
	}
	probed := probedHooks(snapshot)
	for _, key := range config.SortedKeys(configurations) {
		r, pending := e.record(key), st.pendingOf(key, probed[key])
		if !slices.Equal(r.Pending, pending) {
			next := *r
			next.Pending = pending
			e.put(&next, "put hooks of "+key.String()+" in rotation")
		}
	}
}

// pend updates the pending hooks of the objects of an apply, and of those that have some, and adds a note for each.
func (plan *applyPlan) pend(st *storedState, req *applyRequest, snapshot *match.Snapshot, touched map[config.Key]bool) {
	configurations := st.withPending()
	for i := range req.objects {
		if o := &req.objects[i]; o.Validating != nil || o.Mutating != nil {
			configurations[o.Key] = true
		}
	}
	plan.updatePending(st, configurations, snapshot)
	for _, key := range config.SortedKeys(configurations) {
		if !touched[key] {
			continue
		}
		for _, name := range plan.record(key).Pending {
			plan.notes = append(plan.notes, config.Problem{
				Severity: match.SeverityInfo, Code: codePending, Key: key,
				Message: fmt.Sprintf("hook %q is pending: it is called once a host has answered its probe", name),
			})
		}
	}
}

// findNoHosts adds a danger for each hook in rotation that fails closed, and that the apply leaves to hosts while some dispatcher has none that
// may serve it. A dispatcher that had none before is no reason, and a route with rotation Immediate wants it. before are the hooks without the
// apply.
func (plan *applyPlan) findNoHosts(req *applyRequest, before map[match.HookID]*match.Hook, snapshot *match.Snapshot, touched map[config.Key]bool) {
	for _, h := range snapshot.Hooks() {
		key := config.KeyOf(h)
		if !touched[key] || h.Route.Immediate {
			continue
		}
		if r := plan.record(key); r != nil && slices.Contains(r.Pending, h.ID.Name) {
			continue
		}
		lacking, lacked := plan.withoutHost(req, h), plan.withoutHost(req, before[h.ID])
		lacking = slices.DeleteFunc(lacking, func(id string) bool { return slices.Contains(lacked, id) })
		if len(lacking) == 0 {
			continue
		}
		plan.addDanger(req, config.Problem{
			Severity: match.SeverityWarning, Code: lint.CodeNoHost, Key: req.changed(h),
			Message: fmt.Sprintf("hook %q is called and fails closed, and no connected host may serve it on %s: requests that it covers would be "+
				"refused there. Start its host first, or try it with spec.shadow of the HookRoute", h.ID.Name, firstOf(lacking)),
		})
	}
}

// withoutHost returns the dispatchers that would refuse the requests of a hook, since no host that is connected there may serve the hook by its
// route. This dispatcher knows its hosts, and the others report theirs.
func (plan *applyPlan) withoutHost(req *applyRequest, h *match.Hook) (ids []string) {
	if h == nil || !h.Route.Stream || !h.FailsClosed() {
		return nil
	}
	if req.offers != nil && !req.offers(h) {
		ids = append(ids, req.id)
	}
	r := plan.state.Records[config.KeyOf(h)]
	for _, d := range req.dispatchers {
		s := d.GetStatus()
		hasHook := r != nil && reached(s, r.Revision) || r == nil && s.GetApplied().GetDigest() == req.digest
		if s.GetDispatcherId() != req.id && hasHook && reportsNoHost(d, h) {
			ids = append(ids, s.GetDispatcherId())
		}
	}
	return ids
}

// changed is the object of the apply by which a hook changes: its configuration, or else a route.
func (req *applyRequest) changed(h *match.Hook) config.Key {
	key := config.KeyOf(h)
	of := func(key config.Key) bool {
		return slices.ContainsFunc(req.objects, func(o config.Object) bool { return o.Key == key })
	}
	if of(key) {
		return key
	}
	for _, route := range h.RoutedBy {
		if name := (config.Key{Kind: kinds.HookRouteKind, Name: route}); of(name) {
			return name
		}
	}
	return key
}

func (m *meshState) whyPending(key config.Key, r *etcdstore.Record) string {
	parts := make([]string, len(r.Pending))
	for i, name := range r.Pending {
		if i < maxHooksNamed { // firstOf only counts the others
			parts[i] = fmt.Sprintf("hook %q: %s", name, m.pendingReason(key, name))
		}
	}
	return firstOf(parts)
}

// pendingReason returns the reason that the dispatchers report for a pending hook. A report that a host is not ready comes
// before all others.
func (m *meshState) pendingReason(key config.Key, hook string) string {
	why := "no dispatcher has reported yet"
	for _, d := range m.dispatchers {
		for _, p := range d.GetPending() {
			if p.GetObject() != key.String() || p.GetHook() != hook {
				continue
			}
			why = p.GetReason() + ": " + p.GetMessage()
			if p.GetReason() == etcdstore.PendingNotReady {
				return why
			}
		}
	}
	return why
}
