package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// sweepInterval is how often it is looked whether what is being removed can be deleted.
const sweepInterval = time.Second

// Delete implements configv1.ConfigServiceServer.
func (s *Service) Delete(ctx context.Context, r *configv1.DeleteRequest) (*configv1.DeleteResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	key := config.Key{Kind: r.GetKey().GetKind(), Name: r.GetKey().GetName()}
	for range maxAttempts {
		b, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		e, err := b.removal(key, b.accessOf(s.o.Identity(ctx), s.o.Operators), r.GetExpectedResourceVersion(), s.o.Now().UTC())
		if err != nil {
			return nil, err
		}
		revision, err := s.commit(ctx, b, e, r.GetDryRun())
		if errors.Is(err, etcdstore.ErrMoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &configv1.DeleteResponse{Revision: &configv1.Revision{
			Sources: map[string]string{etcdstore.SourceName: revisionText(revision)},
		}}, nil
	}
	return nil, status.Errorf(codes.Aborted, "others have changed the configuration %d times meanwhile: delete again", maxAttempts)
}

// removal is the edit with which the removal of an object begins; an empty one if it has begun.
func (b *base) removal(key config.Key, by access, expected string, now time.Time) (*etcdstore.Edit, error) {
	if err := by.mayRead(); err != nil {
		return nil, err
	}
	old := b.state.Records[key]
	if other, ok := b.others[key]; ok && old == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s comes from the source %s: remove it there (%s)", key, other.Source, other.Origin())
	}
	if old == nil {
		return nil, notFound(key)
	}
	o, ok := b.objects[key]
	if !ok {
		o = config.Object{Key: key}
	}
	if err := by.mayWrite(&o); err != nil {
		return nil, err
	}
	touched, after := map[config.Key]bool{}, maps.Clone(b.objects)
	touch(touched, &o)
	delete(after, key)
	if err := b.trespass(by, after, touched); err != nil {
		return nil, err
	}
	if expected != "" && expected != resourceVersion(old) {
		return nil, status.Errorf(codes.Aborted, "%s has resource version %s, not %s: read it again", key, resourceVersion(old), expected)
	}
	e := &etcdstore.Edit{}
	if !old.Removing {
		r := *old
		r.Removing, r.Actor, r.Changed = true, by.identity, now
		e.Put = []*etcdstore.Record{&r}
		e.Change = etcdstore.Change{At: now, Actor: by.identity, Actions: []string{"began to remove " + key.String()}, Keys: []string{key.String()}}
		if o.Route != nil && len(b.marked()) > 0 {
			snapshot, _ := config.Recompile(b.compiled, "", b.with(after))
			b.unmark(e, snapshot)
		}
	}
	return e, nil
}

// Run deletes what is being removed, once no review is judged by it any more, until ctx ends. Several dispatchers may do so
// at a time.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(sweepInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
				s.o.Logger.WarnContext(ctx, "what is being removed stays for now", slog.Any("error", err))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep deletes what can be, and takes marks off hooks that are called whatever the store says.
func (s *Service) sweep(ctx context.Context) error {
	live := s.o.Live.Configuration()
	b, err := s.read(ctx)
	if err != nil {
		return err
	}
	e := &etcdstore.Edit{Change: etcdstore.Change{At: s.o.Now().UTC()}}
	var dispatchers []etcdstore.Status
	for key, r := range b.state.Records {
		if !r.Removing {
			continue
		}
		if dispatchers == nil {
			if dispatchers, err = s.o.Objects.Dispatchers(ctx); err != nil {
				return err
			}
		}
		if released(dispatchers, r.Revision) {
			e.Delete = append(e.Delete, key)
			e.Change.Keys = append(e.Change.Keys, key.String())
			e.Change.Actions = append(e.Change.Actions, "removed "+key.String())
			e.Change.Actor = r.Actor
		}
	}
	if live.Snapshot() != nil && etcdRevision(live.Sources) == b.state.Revision {
		b.unmark(e, live.Snapshot())
	}
	if len(e.Delete)+len(e.Put) == 0 {
		return nil
	}
	_, err = s.commit(ctx, b, e, false)
	if errors.Is(err, etcdstore.ErrMoved) {
		return nil
	}
	return err
}

// released reports whether no live dispatcher judges a review by a configuration before a revision.
func released(all []etcdstore.Status, revision int64) bool {
	for i := range all {
		if !reached(&all[i], revision) || all[i].Held < revision {
			return false
		}
	}
	return true
}
