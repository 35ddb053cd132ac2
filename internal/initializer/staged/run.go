package staged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

const (
	// retryAfter is the pause between the end of a watch of etcd and the next list.
	retryAfter = 200 * time.Millisecond
	// pageSize is how many objects one request of a list returns.
	pageSize = 32
	// synchronizeTimeout bounds the time until the cache is as new as etcd.
	synchronizeTimeout = 5 * time.Second
	// progressAfter is how often etcd is asked how far its watch has come.
	progressAfter = 50 * time.Millisecond
)

// Run follows the objects in etcd until ctx ends, and deletes those that no lease ends. Until it has listed the objects for the first time, List,
// Watch and Wait wait; after its end they fail with ErrStopped. It is called once.
func (s *Store) Run(ctx context.Context) error {
	defer s.cache.stop()
	var repairing sync.WaitGroup
	defer repairing.Wait()
	repairing.Go(func() { s.keepRepaired(ctx) })
	repairing.Go(func() { s.measure(ctx) })
	for failing := false; ctx.Err() == nil; {
		followed, err := s.follow(ctx)
		if ctx.Err() == nil && (followed || !failing) {
			s.options.Logger.Warn("the watch of staged objects in etcd has ended, and begins again", "error", err)
		}
		failing = !followed
		clock.Sleep(ctx, retryAfter)
	}
	return nil
}

// follow lists the objects and watches them until that ends. followed is whether there was a list.
func (s *Store) follow(ctx context.Context) (followed bool, err error) {
	entries, revision, err := s.read(ctx)
	if err != nil {
		return false, err
	}
	s.cache.list(entries, revision)
	ctx, cancel := context.WithCancel(ownStream(ctx))
	defer cancel()
	for answer := range s.options.Client.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithFragment()) {
		if err := answer.Err(); err != nil {
			return true, err
		}
		s.take(answer)
	}
	return true, errors.New("the connection was lost")
}

// ownStream returns the context of the watch. The client has a stream for all watches of the same metadata, and etcd reports progress
// to all of a stream: others are not to take that for changes.
func ownStream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "portcullis-watch", "staged")
}

// take takes the changes of one answer of etcd.
func (s *Store) take(answer clientv3.WatchResponse) {
	entries := make([]*entry, len(answer.Events))
	for i, e := range answer.Events {
		if e.Type == mvccpb.PUT {
			entries[i] = s.entryOf(e.Kv)
		}
	}
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range answer.Events {
		if entries[i] == nil {
			c.removeLocked(string(e.Kv.Key), e.Kv.ModRevision)
		} else {
			c.putLocked(entries[i])
		}
	}
	if answer.IsProgressNotify() { // beside changes the revision of the header may be past those that have come
		c.advanceLocked(answer.Header.Revision)
	}
}

// read returns all objects at one revision.
func (s *Store) read(ctx context.Context) ([]*entry, int64, error) {
	var entries []*entry
	from, options := s.prefix, []clientv3.OpOption{clientv3.WithLimit(pageSize), clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix))}
	for revision := int64(0); ; {
		page, err := s.get(ctx, from, append(options, clientv3.WithRev(revision))...)
		if err != nil {
			return nil, 0, err
		}
		for _, kv := range page.Kvs {
			entries = append(entries, s.entryOf(kv))
		}
		revision = cmp.Or(revision, page.Header.Revision)
		if !page.More {
			return entries, revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := etcdstore.Attempt(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.options.Client.Get(ctx, key, options...)
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return answer, nil
}

// entryOf decodes a key of etcd with its value.
func (s *Store) entryOf(kv *mvccpb.KeyValue) *entry {
	e := &entry{key: string(kv.Key), lease: LeaseID(kv.Lease), made: kv.CreateRevision, set: kv.ModRevision}
	var full *memory.FullError // a metric counts these
	if e.object, e.unread = s.decode(kv); e.unread != nil && !errors.As(e.unread, &full) {
		s.options.Logger.Error("a staged object cannot be read", "key", e.key, "error", e.unread)
	}
	return e
}

// synchronize waits until all is known here that was in etcd when it was called.
func (s *Store) synchronize(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, synchronizeTimeout, ErrUnavailable)
	defer cancel()
	now, err := s.get(ctx, s.prefix, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	t := time.NewTicker(progressAfter)
	defer t.Stop()
	for {
		known, more, err := s.cache.upTo(now.Header.Revision)
		if known || err != nil {
			return err
		}
		_ = s.options.Client.RequestProgress(ownStream(ctx)) // it is asked again
		select {
		case <-more:
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// upTo reports whether all changes up to a revision are known, and else returns a channel that is closed when more are.
func (c *cache) upTo(revision int64) (known bool, more <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return false, nil, ErrStopped
	case c.revision >= revision && c.revision > 0:
		return true, nil, nil
	}
	return false, c.waiterLocked(""), nil
}
