package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// codePending tells who applies a hook that it is not called yet.
const codePending = "pending"

const (
	// maxRotated bounds the objects of which one transaction puts hooks in rotation: within what etcd takes unless it is told
	// otherwise.
	maxRotated = 100
	// maxPendingNamed bounds the hooks that a condition names.
	maxPendingNamed = 8
	// rotator is who puts hooks in rotation, as changes name it.
	rotator = "portcullis"
)

// Ready is a hook of which a host has said that it can judge reviews.
type Ready struct {
	// Key is the configuration.
	Key config.Key
	// Hook is the name of the hook.
	Hook string
	// Host is the identity of the host that said so.
	Host string
}

// Rotate puts hooks in rotation, for good. Those that are not pending stay as they are: several dispatchers may do so at a
// time, and again. More than a transaction can hold are left for the next call. An error is a gRPC status; what has to be
// done then is to call it again later.
func (s *Service) Rotate(ctx context.Context, ready []Ready) error {
	for range maxAttempts {
		b, err := s.read(ctx)
		if err != nil {
			return err
		}
		e := b.rotation(ready, s.o.Now().UTC())
		if _, err := s.commit(ctx, b, e, false); !errors.Is(err, etcdstore.ErrMoved) {
			return err
		}
	}
	return status.Errorf(codes.Aborted, "others have changed the configuration %d times meanwhile", maxAttempts)
}

// rotation is the edit that puts hooks in rotation; an empty one if none of them is pending. The generations of the objects
// stay: their authors have changed nothing.
func (b *base) rotation(ready []Ready, now time.Time) *etcdstore.Edit {
	e := &etcdstore.Edit{Change: etcdstore.Change{At: now, Actor: rotator}}
	edited := map[config.Key]*etcdstore.Record{}
	for _, x := range ready {
		r := edited[x.Key]
		if r == nil {
			r = b.state.Records[x.Key]
		}
		if r == nil || r.Removing || !slices.Contains(r.Pending, x.Hook) || edited[x.Key] == nil && len(edited) == maxRotated {
			continue
		}
		next := *r
		next.Pending = slices.DeleteFunc(slices.Clone(r.Pending), func(name string) bool { return name == x.Hook })
		edited[x.Key] = &next
		e.Change.Actions = append(e.Change.Actions, fmt.Sprintf("put hook %q of %s in rotation: %s is ready", x.Hook, x.Key, x.Host))
	}
	for _, key := range sortedKeys(edited) {
		e.Put, e.Change.Keys = append(e.Put, edited[key]), append(e.Change.Keys, key.String())
	}
	return e
}

// probed are the names of the hooks that a host puts in rotation by its answer to a probe, sorted, by configuration: those
// that streams serve, unless their route says Immediate.
func probed(snapshot *match.Snapshot) map[config.Key][]string {
	out := map[config.Key][]string{}
	for _, h := range snapshot.Hooks() {
		key := config.Key{Kind: kindOf(h), Name: h.ID.Configuration}
		if h.Route.Stream && !h.Route.Immediate && !slices.Contains(out[key], h.ID.Name) {
			out[key] = append(out[key], h.ID.Name)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// pendingOf are those of the probed hooks of a configuration that are to be pending: the new ones, and those that were. What
// is not known to be new is in rotation.
func (b *base) pendingOf(key config.Key, probed []string) []string {
	old := b.state.Records[key]
	before, known := b.objects[key]
	return slices.DeleteFunc(slices.Clone(probed), func(name string) bool {
		if old == nil || slices.Contains(old.Pending, name) {
			return false
		}
		return !known || slices.Contains(hookNames(&before), name)
	})
}

// hookNames are the names of the hooks of a configuration.
func hookNames(o *config.Object) []string {
	var names []string
	switch {
	case o.Validating != nil:
		for i := range o.Validating.Webhooks {
			names = append(names, o.Validating.Webhooks[i].Name)
		}
	case o.Mutating != nil:
		for i := range o.Mutating.Webhooks {
			names = append(names, o.Mutating.Webhooks[i].Name)
		}
	}
	return names
}

// marked are the configurations of the store that have hooks which are pending.
func (b *base) marked() map[config.Key]bool {
	out := map[config.Key]bool{}
	for key, r := range b.state.Records {
		if len(r.Pending) > 0 && !r.Removing {
			out[key] = true
		}
	}
	return out
}

// pend marks the hooks that are new, and takes the marks off those that are in rotation by what is wished for: a mark that
// means nothing any more must not come to mean something again.
func (d *draft) pend(b *base, w *wish, snapshot *match.Snapshot, touched map[config.Key]bool) {
	concerned, waits := b.marked(), probed(snapshot)
	for i := range w.objects {
		if o := &w.objects[i]; o.Validating != nil || o.Mutating != nil {
			concerned[o.Key] = true
		}
	}
	for _, key := range sortedKeys(concerned) {
		r, pending := d.record(b, key), b.pendingOf(key, waits[key])
		if !slices.Equal(r.Pending, pending) {
			next := *r
			next.Pending = pending
			d.amend(&next, "put hooks of "+key.String()+" in rotation")
		}
		if !touched[key] {
			continue
		}
		for _, name := range pending {
			d.notes = append(d.notes, config.Problem{
				Severity: match.SeverityInfo, Code: codePending, Key: key,
				Message: fmt.Sprintf("hook %q is pending: it is called once a host has answered its probe", name),
			})
		}
	}
}

// unmark takes the marks off hooks that do not wait for a probe by a snapshot of all that is stored: a route has gone that had
// hosts serve them, or one of another source says Immediate.
func (b *base) unmark(e *etcdstore.Edit, snapshot *match.Snapshot) {
	marked := b.marked()
	if len(marked) == 0 {
		return
	}
	waits := probed(snapshot)
	for _, key := range sortedKeys(marked) {
		r, pending := b.state.Records[key], b.pendingOf(key, waits[key])
		if slices.Equal(r.Pending, pending) {
			continue
		}
		next := *r
		next.Pending = pending
		e.Put = append(e.Put, &next)
		e.Change.Actions, e.Change.Keys = append(e.Change.Actions, "put hooks of "+key.String()+" in rotation"), append(e.Change.Keys, key.String())
		if e.Change.Actor == "" {
			e.Change.Actor = rotator
		}
	}
}

// sortedKeys are the keys of a map, in order.
func sortedKeys[V any](m map[config.Key]V) []config.Key {
	return slices.SortedFunc(maps.Keys(m), config.Key.Compare)
}

// waiting says which hooks of a record are pending, and why.
func (v *view) waiting(key config.Key, r *etcdstore.Record) string {
	var parts []string
	for _, name := range r.Pending[:min(len(r.Pending), maxPendingNamed)] {
		parts = append(parts, fmt.Sprintf("hook %q: %s", name, v.whyPending(key, name)))
	}
	if more := len(r.Pending) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// whyPending is what the dispatchers say of a hook. One that has heard a host knows more than one that has not.
func (v *view) whyPending(key config.Key, hook string) string {
	why := "no dispatcher has said yet what it waits for"
	for i := range v.dispatchers {
		for _, p := range v.dispatchers[i].Pending {
			if p.Object != key.String() || p.Hook != hook {
				continue
			}
			why = p.Reason + ": " + p.Message
			if p.Reason == etcdstore.PendingNotReady {
				return why
			}
		}
	}
	return why
}
