package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

const (
	// sweepInterval is how often Run looks for removed objects that can be deleted.
	sweepInterval = time.Second
	// sweptTogether is how many objects one transaction deletes at most: etcd takes 128 operations in one by default.
	sweptTogether = 32
)

// Delete implements configv1.ConfigServiceServer.
func (s *Service) Delete(ctx context.Context, r *configv1.DeleteRequest) (*configv1.DeleteResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	revision, err := s.change(ctx, "delete", r.GetDryRun(), func(st *storedState) (*edit, error) {
		done, err := s.turn(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		by := st.accessOf(s.o.Identity(ctx), s.o.Operators)
		if !s.hasStore() {
			return nil, st.refuseRemoval(requestedKey(r.GetKey()), by)
		}
		return st.removal(requestedKey(r.GetKey()), by, r.GetExpectedResourceVersion(), s.now().UTC())
	})
	if err != nil {
		return nil, err
	}
	return &configv1.DeleteResponse{Revision: revisionOf(revision)}, nil
}

// removal returns the edit that begins to remove an object; an empty one if the removal has begun.
func (st *storedState) removal(key config.Key, by access, expected string, now time.Time) (*edit, error) {
	if err := by.mayRead(); err != nil {
		return nil, err
	}
	old := st.state.Records[key]
	if other, ok := st.others[key]; ok && old == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s comes from the source %s: remove it there (%s)", key, other.Source, other.Origin())
	}
	if old == nil {
		return nil, notFound(key, append(slices.Collect(maps.Keys(st.state.Records)), slices.Collect(maps.Keys(st.others))...))
	}
	o, ok := st.objects[key]
	if !ok {
		o = config.Object{Key: key}
	}
	if err := by.mayWrite(&o); err != nil {
		return nil, err
	}
	if err := st.refuseUnread(by, key); err != nil {
		return nil, err
	}
	touched, after := map[config.Key]bool{}, maps.Clone(st.objects)
	touch(touched, &o)
	delete(after, key)
	if err := st.authorize(by, after, touched); err != nil {
		return nil, err
	}
	if expected != "" && expected != resourceVersion(old) {
		return nil, status.Errorf(codes.Aborted, "%s has resource version %s, not %s: read it again", key, resourceVersion(old), expected)
	}
	e := st.newEdit(by.identity, now)
	e.writer = by.writer()
	if old.Removing {
		return e, nil
	}
	if err := st.refuseLeaving(&o); err != nil {
		return nil, err
	}
	r := *old
	r.Removing, r.Actor, r.Changed = true, by.identity, now
	e.put(&r, "began to remove "+key.String())
	if pending := st.withPending(); o.Route != nil && len(pending) > 0 {
		snapshot, _ := config.Recompile(st.compiled, "", st.allWith(after))
		e.updatePending(st, pending, snapshot)
	}
	return e, nil
}

// Run deletes removed objects once no review uses them any more, until ctx ends. Several dispatchers may run it at the same
// time.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(sweepInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := s.sweep(ctx); err != nil && !errors.Is(err, etcdstore.ErrMoved) && ctx.Err() == nil {
				s.o.Logger.WarnContext(ctx, "removed objects stay for now", slog.Any("error", err))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep deletes removed objects, and takes hooks out of Pending that are called by the snapshot in force. The error is
// etcdstore.ErrMoved if another change came between.
func (s *Service) sweep(ctx context.Context) error {
	for {
		if swept, err := s.sweepSome(ctx); err != nil || swept < sweptTogether {
			return err
		}
	}
}

// sweepSome is sweep for sweptTogether objects at most. It returns how many it has deleted.
func (s *Service) sweepSome(ctx context.Context) (swept int, err error) {
	live := s.o.Live.Configuration()
	st, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	e := st.newEdit("", s.now().UTC())
	var dispatchers []*configv1.DispatcherReport
	for key, r := range st.state.Records {
		if !r.Removing || swept == sweptTogether {
			continue
		}
		if dispatchers == nil {
			if dispatchers, err = s.dispatchers(ctx); err != nil {
				return 0, err
			}
		}
		if released(dispatchers, r.Revision) {
			e.remove(key)
			e.Change.Actor = r.Actor
			swept++
		}
	}
	if live.Snapshot() != nil && etcdRevision(live.Sources) == st.state.Revision {
		e.updatePending(st, st.withPending(), live.Snapshot())
	}
	e.Change.Actor = cmp.Or(e.Change.Actor, rotator)
	_, err = s.commit(ctx, e)
	return swept, err
}

// released reports whether every live dispatcher uses a revision, and none uses an earlier one for a review.
func released(all []*configv1.DispatcherReport, revision int64) bool {
	return !slices.ContainsFunc(all, func(d *configv1.DispatcherReport) bool {
		return !reached(d.GetStatus(), revision) || held(d.GetStatus()) < revision
	})
}
