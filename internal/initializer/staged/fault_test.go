package staged_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/prometheus/client_golang/prometheus"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// A dispatcher that is cut off from etcd, while others write and etcd drops its history, tells its watches the missed changes.
func TestAWatchGoesOnAfterACut(t *testing.T) {
	citest.Gate(t, "waits for watches of an etcd that is cut off: 6 s")
	t.Parallel()
	c := etcdtest.Start(t)
	cut := c.Followers()[0]
	to := func(members ...*etcdtest.Member) *staged.Store {
		o := c.Options(etcdtest.User)
		endpoints := o.Endpoints
		o.Endpoints = nil
		for i, m := range c.Members {
			for _, wanted := range members {
				if m == wanted {
					o.Endpoints = append(o.Endpoints, endpoints[i])
				}
			}
		}
		return open(t, staged.Options{Client: c.Client(o)})
	}
	var others []*etcdtest.Member
	for _, m := range c.Members {
		if m != cut {
			others = append(others, m)
		}
	}
	s, other := to(cut), to(others...)
	p, q := create(t, other, small("p", "u1")), create(t, other, small("q", "u2"))
	_, version := list(t, s)
	w := watch(t, s, version, 100)

	cut.Clients.Cut()
	update(t, other, q, `1`)
	if _, err := other.Delete(t.Context(), p.GetKey(), "", ""); err != nil {
		t.Fatal(err)
	}
	create(t, other, small("p", "u3"))
	r := create(t, other, small("r", "u4"))
	if _, err := other.Delete(t.Context(), r.GetKey(), "", ""); err != nil { // of which nobody hears
		t.Fatal(err)
	}
	if _, _, err := s.List(t.Context()); !errors.Is(err, staged.ErrUnavailable) {
		t.Errorf("a list without etcd: %v", err)
	}
	if _, err := s.Watch(t.Context(), version, 1); !errors.Is(err, staged.ErrUnavailable) {
		t.Errorf("a watch without etcd: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.Update(ctx, q.GetKey(), q.GetResourceVersion(), changed(q, `2`)); !errors.Is(err, staged.ErrUnavailable) {
		t.Errorf("an update without etcd: %v", err)
	}
	if _, _, err := s.Create(ctx, small("s", "u5"), ttl); !errors.Is(err, staged.ErrUnavailable) {
		t.Errorf("a creation without etcd: %v", err)
	}
	compact(t, c.Client(c.Options(etcdtest.Root)))
	cut.Heal()

	got := map[string]bool{}
	for range 3 {
		got[told(next(t, w))] = true
	}
	equal(t, "what was missed", map[string]bool{"MODIFIED q 1 before {}": true, "DELETED p {} before {}": true, "ADDED p {}": true}, got)
	if _, err := s.Delete(t.Context(), p.GetKey(), "u3", ""); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w); told(e) != "DELETED p {} before {}" || e.Object.GetUid() != "u3" {
		t.Errorf("after that: %s", told(e))
	}
}

// compact drops the history of etcd.
func compact(t *testing.T, client *clientv3.Client) {
	t.Helper()
	now, err := client.Get(t.Context(), "x")
	if err == nil {
		_, err = client.Compact(t.Context(), now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A member that is killed in the middle loses no write and makes none twice: each counter is one more for each update that was
// acknowledged, and every store ends with the same.
func TestAMemberIsKilled(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	var stores []*staged.Store
	for range 2 {
		stores = append(stores, open(t, staged.Options{Client: c.Client(c.Options(etcdtest.User))}))
	}
	const objects, updates = 8, 30
	var writing sync.WaitGroup
	half := make(chan struct{}, objects)
	for i := range objects {
		writing.Go(func() {
			s := stores[i%len(stores)]
			o := retried(t, func() (*initializerv1.StagedObject, error) {
				o, _, err := s.Create(t.Context(), small(fmt.Sprint("p", i), "u"), ttl)
				var exists *staged.ExistsError
				if errors.As(err, &exists) {
					return exists.Object, nil // an attempt that was not answered
				}
				return o, err
			})
			for n := range updates {
				o = retried(t, func() (*initializerv1.StagedObject, error) {
					written, err := s.Update(t.Context(), o.GetKey(), o.GetResourceVersion(), changed(o, fmt.Sprint(n)))
					if errors.Is(err, staged.ErrConflict) {
						now, err := s.Get(t.Context(), o.GetKey())
						if err == nil && string(now.GetObject().GetRaw()) != fmt.Sprint(n) {
							t.Errorf("somebody else has written %s", now.GetObject().GetRaw())
						}
						return now, err
					}
					return written, err
				})
				if n == updates/2 {
					half <- struct{}{}
				}
			}
		})
	}
	<-half
	c.Leader().Kill()
	writing.Wait()
	for _, s := range stores {
		all := retriedList(t, s)
		if len(all) != objects {
			t.Errorf("%d objects, want %d", len(all), objects)
		}
		for _, o := range all {
			if got := string(o.GetObject().GetRaw()); got != fmt.Sprint(updates-1) {
				t.Errorf("%s has %s", o.GetKey().GetName(), got)
			}
		}
	}
}

// retried tries again while etcd is unavailable.
func retried(t *testing.T, do func() (*initializerv1.StagedObject, error)) *initializerv1.StagedObject {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		o, err := do()
		if err == nil {
			return o
		}
		if !errors.Is(err, staged.ErrUnavailable) || time.Now().After(deadline) {
			t.Error(err)
			return o
		}
	}
}

func retriedList(t *testing.T, s *staged.Store) (all []*initializerv1.StagedObject) {
	t.Helper()
	retried(t, func() (_ *initializerv1.StagedObject, err error) {
		all, _, err = s.List(t.Context())
		return nil, err
	})
	return all
}

// Objects without a lease, and objects older than any review, are deleted; clocks may differ by a minute.
func TestRepair(t *testing.T) {
	client := etcd(t)
	registry := prometheus.NewPedanticRegistry()
	s := open(t, staged.Options{Client: client, RepairAfter: time.Hour, Metrics: registry})
	now := time.Now()
	for name, age := range map[string]time.Duration{"new": 0, "old": time.Hour + staged.ClockDifference - time.Second, "too-old": time.Hour + staged.ClockDifference + time.Second} {
		o := small(name, "u")
		o.Created = timestamppb.New(now.Add(-age))
		create(t, s, o)
	}
	if _, err := client.Put(t.Context(), "/portcullis/staged/prod//pods/default/foreign", "not ours"); err != nil {
		t.Fatal(err)
	}
	orphan := small("orphan", "u")
	orphan.Created = timestamppb.New(now)
	created := create(t, s, orphan)
	value, err := client.Get(t.Context(), "/portcullis/staged/prod//pods/default/orphan")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), string(value.Kvs[0].Key), string(value.Kvs[0].Value)); err != nil { // which takes it from its lease
		t.Fatal(err)
	}
	list(t, s)
	equal(t, "metrics before", []string{
		"portcullis_staged_object_bytes = 8", "portcullis_staged_objects{prod} = 4", "portcullis_staged_objects_repaired_total = 0",
		"portcullis_staged_objects_unreadable = 1", "portcullis_staged_watches = 0", "portcullis_staged_written_bytes{prod} = 16384",
	}, metrics(t, registry))
	w := watch(t, s, "", 10)
	s.Repair(t.Context(), now)
	names := map[string]bool{}
	for range 2 {
		e := next(t, w)
		names[e.Object.GetKey().GetName()] = e.Type == initializerv1.EventType_EVENT_TYPE_DELETED
	}
	equal(t, "what was deleted", map[string]bool{"orphan": true, "too-old": true}, names)
	left, err := client.Get(t.Context(), "/portcullis/staged/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 2 {
		t.Errorf("%d objects are left, want 2: %v", left.Count, err)
	}
	list(t, s)
	equal(t, "metrics after", []string{
		"portcullis_staged_object_bytes = 4", "portcullis_staged_objects{prod} = 2", "portcullis_staged_objects_repaired_total = 3",
		"portcullis_staged_objects_unreadable = 0", "portcullis_staged_watches = 1", "portcullis_staged_written_bytes{prod} = 16384",
	}, metrics(t, registry))
	if _, err := s.Get(t.Context(), created.GetKey()); !errors.Is(err, staged.ErrNotFound) {
		t.Errorf("the one without a lease: %v", err)
	}
}

// metrics are the metrics of a registry, a line for each series.
func metrics(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "portcullis_store_") { // when etcd has answered
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, pair := range m.GetLabel() {
				labels = "{" + pair.GetValue() + "}"
			}
			lines = append(lines, fmt.Sprint(f.GetName(), labels, " = ", m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return lines
}
