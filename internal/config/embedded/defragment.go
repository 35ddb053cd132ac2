package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// DefragmentInterval is how often it is looked whether the database nears its quota.
	DefragmentInterval = time.Minute
	// crowded is the percentage of the quota above which the store is defragmented: with all the staged objects of a minute more it stays below half.
	crowded = 40
	// tight is the part of the quota, in percent, that leaves little room for changes of the configuration.
	tight = 75
	// worthwhile is the part of the database, in percent, that has to be free for it to be written anew.
	worthwhile = 10
)

// Quota is the most bytes that the database may have.
func (s *Server) Quota() int64 { return s.quota }

// Run keeps the database below its quota until ctx ends: when it nears its quota, old versions are dropped and the file is written
// anew without them, and etcd takes writes again if it had stopped to. It is called once.
func (s *Server) Run(ctx context.Context) error {
	t := time.NewTicker(DefragmentInterval)
	defer t.Stop()
	for {
		if err := s.Defragment(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the store of the configuration has little room and gets none", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Defragment drops old versions and writes the file anew once, if it nears its quota. It returns an error when there is little space
// afterwards too. Meanwhile etcd does not answer: for the time that writing the database takes, which is small without old versions.
func (s *Server) Defragment(ctx context.Context) error {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("asking for alarms: %w", err)
	}
	backend := s.etcd.Server.Backend()
	if len(alarms.Alarms) == 0 && backend.Size()*100 < s.quota*crowded {
		return nil
	}
	if err := s.dropOld(ctx); err != nil {
		return err
	}
	before := backend.Size()
	// bbolt counts a page as free one transaction after it was dropped, so a store that takes no more writes may have more room than it counts.
	if free := before - backend.SizeInUse(); len(alarms.Alarms) > 0 || free*100 >= before*worthwhile {
		if err := backend.Defrag(); err != nil {
			return fmt.Errorf("writing the database anew: %w", err)
		}
		s.log.Info("the store of the configuration made room", "before_bytes", before, "after_bytes", backend.Size(), "quota_bytes", s.quota)
	}
	after := backend.Size()
	if after < s.quota {
		if err := s.disarm(ctx, alarms.Alarms); err != nil {
			return err
		}
	}
	if after*100 >= s.quota*tight {
		return fmt.Errorf("the configuration itself takes %d bytes, and the quota is %d: raise --store-quota", after, s.quota)
	}
	return nil
}

// dropOld drops everything but the newest version of each key.
func (s *Server) dropOld(ctx context.Context) error {
	answer, err := s.client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("asking for the revision: %w", err)
	}
	_, err = s.client.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("dropping old versions: %w", err)
	}
	return nil
}

// disarm ends alarms that there was no room.
func (s *Server) disarm(ctx context.Context, alarms []*etcdserverpb.AlarmMember) error {
	for _, a := range alarms {
		if a.GetAlarm() != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := s.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return fmt.Errorf("ending the alarm: %w", err)
		}
	}
	return nil
}
