package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// maxAttempts bounds how often a change is planned anew because another one was committed first.
const maxAttempts = 20

// recordBytes is about the size of a record without its manifest, in bytes.
const recordBytes = 1 << 10

// readAgainTimeout bounds the read of the store after a change, with the wait for its turn.
const readAgainTimeout = 10 * time.Second

// edit collects the writes of one change to a state.
type edit struct {
	etcdstore.Edit

	state *etcdstore.State
	// writer is charged for the bytes of the edit; empty for an operator, and for the mesh itself.
	writer string
}

// bytes is about how much the edit writes.
func (e *edit) bytes() int {
	n := len(e.Change.Actor)
	for _, r := range e.Put {
		n += len(r.Manifest) + recordBytes
	}
	return n + len(e.Delete)*recordBytes
}

func (st *storedState) newEdit(actor string, now time.Time) *edit {
	return &edit{state: st.state, Edit: etcdstore.Edit{Change: etcdstore.Change{At: now, Actor: actor}}}
}

// put replaces a record. For the first record of an object, the history gets the action.
func (e *edit) put(r *etcdstore.Record, action string) {
	if i := e.index(r.Key); i >= 0 {
		e.Put[i] = r
		return
	}
	e.Put = append(e.Put, r)
	e.log(r.Key, action)
}

func (e *edit) remove(key config.Key) {
	e.Delete = append(e.Delete, key)
	e.log(key, "removed "+key.String())
}

func (e *edit) log(key config.Key, action string) {
	e.Change.Actions, e.Change.Keys = append(e.Change.Actions, action), append(e.Change.Keys, key.String())
}

// record returns an object as the edit leaves it; nil if the store does not have it.
func (e *edit) record(key config.Key) *etcdstore.Record {
	if i := e.index(key); i >= 0 {
		return e.Put[i]
	}
	return e.state.Records[key]
}

// index returns the position in Put; -1 if the edit does not write the object.
func (e *edit) index(key config.Key) int {
	return slices.IndexFunc(e.Put, func(r *etcdstore.Record) bool { return r.Key == key })
}

func (e *edit) empty() bool { return len(e.Put)+len(e.Delete) == 0 }

// change plans an edit and commits it, and starts again while another change comes first. It returns the revision that
// contains the edit. verb names the call in the error.
func (s *Service) change(ctx context.Context, verb string, dryRun bool, plan func(*storedState) (*edit, error)) (revision int64, err error) {
	for attempt := range maxAttempts {
		st, err := s.read(ctx)
		if err != nil {
			return 0, err
		}
		e, err := plan(st)
		if err != nil {
			return 0, err
		}
		if dryRun {
			return e.state.Revision, nil
		}
		if attempt == 0 { // an attempt that came too late has written nothing
			if err := s.spend(e); err != nil {
				return 0, err
			}
		}
		revision, err := s.commit(ctx, e)
		if err == nil {
			s.readAgain(ctx)
		}
		if !errors.Is(err, etcdstore.ErrMoved) {
			return revision, err
		}
	}
	return 0, status.Errorf(codes.Aborted, "others have changed the configuration %d times meanwhile: %s again", maxAttempts, verb)
}

// readAgain reads the store after a change, also for a caller that has gone. The service holds the objects of the state that it has read last, with their
// compiled expressions: of an apply, which others read next from the store; not of a state before a deletion. A failure delays that until the next call.
func (s *Service) readAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readAgainTimeout)
	defer cancel()
	_, _ = s.readStore(ctx)
}

// spend books the bytes of an edit to its writer.
func (s *Service) spend(e *edit) error {
	if e.writer == "" || e.empty() || s.o.Written == nil {
		return nil
	}
	if err := s.o.Written.Spend(e.writer, e.bytes()); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// commit writes an edit, unless it is empty, and returns the revision that contains it.
func (s *Service) commit(ctx context.Context, e *edit) (int64, error) {
	if e.empty() {
		return e.state.Revision, nil
	}
	revision, err := s.o.Objects.Commit(ctx, e.state, e.Edit)
	switch {
	case err == nil:
		s.roles.expire(s.now())
		s.o.Logger.InfoContext(ctx, "configuration changed", "revision", revision, "actor", e.Change.Actor,
			"actions", e.Change.Actions, "acknowledged", e.Change.Acknowledged)
		return revision, nil
	case errors.Is(err, etcdstore.ErrMoved):
		return 0, err
	case errors.Is(err, etcdstore.ErrFull):
		return 0, status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, etcdstore.ErrTooLarge):
		return 0, status.Error(codes.InvalidArgument, err.Error())
	}
	return 0, unavailable(fmt.Errorf("%w: apply again: objects that are stored already stay as they are", err))
}
