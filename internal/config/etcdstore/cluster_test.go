package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// patience bounds the waits on a slow machine.
const patience = 2 * time.Minute

// inCluster is a store in a cluster, and a store.Store that judges by it.
type inCluster struct {
	*etcdtest.Cluster

	t       *testing.T
	store   *etcdstore.Store
	judging *store.Store
	state   *etcdstore.State
	n       int64 // of the last version of the route
}

func newInCluster(t *testing.T, maxAge time.Duration) *inCluster {
	t.Helper()
	c := &inCluster{Cluster: etcdtest.Start(t), t: t}
	c.store = c.Store()
	var err error
	c.judging, err = store.New(store.Options{Sources: []config.Source{c.store.Source(configtest.NewDecoder())}, MaxAge: maxAge})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.judging.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// routeOf is the n-th version of a route.
func routeOf(n int64) *etcdstore.Record {
	r := record("a", n)
	r.Manifest = fmt.Appendf(nil, `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"a"},`+
		`"spec":{"configuration":"n%d","stream":{}}}`, n)
	return r
}

// change commits the next version of the route, however often it has to be tried.
func (c *inCluster) change() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for c.n++; ; {
		state, err := c.store.Read(ctx, c.state)
		if err == nil {
			c.state = state
			_, err = c.store.Commit(ctx, state, put(routeOf(c.n)))
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// follows waits until the last change is in force.
func (c *inCluster) follows(after string) {
	c.t.Helper()
	want := fmt.Sprint("n", c.n)
	for deadline := time.Now().Add(patience); ; {
		now := c.judging.Configuration()
		o, ok := now.Objects[config.Key{Kind: "HookRoute", Name: "a"}]
		if ok && now.Judging && o.Route.Spec.Configuration == want {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %s is not in force: %v, %v", after, want, o.Route, c.judging.Ready())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// judges reports whether a review may begin now.
func (c *inCluster) judges() error {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel() // it does not wait
	snapshot, err := c.judging.Fresh(ctx)
	if err == nil {
		c.judging.Release(snapshot)
	}
	return err
}

func TestADispatcherFollowsWhateverOneMemberDoes(t *testing.T) {
	citest.Gate(t, "has each member of an etcd fail in each way: 30 s")
	t.Parallel()
	c := newInCluster(t, 0)
	c.change()
	c.follows("at the beginning")
	for name, fault := range map[string]func(*etcdtest.Member) (mend func()){
		"is killed":  func(m *etcdtest.Member) func() { m.Kill(); return m.Restart },
		"is cut off": func(m *etcdtest.Member) func() { m.CutOff(); return m.Heal },
		"hangs":      func(m *etcdtest.Member) func() { m.Hang(); return m.Heal },
		"is slow":    func(m *etcdtest.Member) func() { m.Slow(30 * time.Millisecond); return m.Heal },
		"is deaf to its clients": func(m *etcdtest.Member) func() {
			m.Clients.Hang()
			return m.Heal
		},
	} {
		for role, which := range map[string]func() *etcdtest.Member{
			"the leader": c.Leader, "a follower": func() *etcdtest.Member { return c.Followers()[0] },
		} {
			t.Run(role+" "+name, func(t *testing.T) {
				mend := fault(which())
				for range 3 {
					c.change()
					c.follows("while " + role + " " + name)
				}
				mend()
				c.change()
				c.follows("afterwards")
			})
		}
	}
}

func TestNoListingFailsBecauseAMemberHangs(t *testing.T) {
	citest.Gate(t, "waits for members of an etcd that hang: 7 s")
	t.Parallel()
	c := newInCluster(t, 0)
	for _, m := range c.Members {
		m.Clients.Hang()
		source := c.store.Source(configtest.NewDecoder())
		for range 2 * etcdtest.Size { // the client takes turns
			if _, err := source.List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m.Heal()
	}
}

func TestWithoutAQuorumNothingOldIsJudgedBy(t *testing.T) {
	citest.Gate(t, "waits until a configuration is too old: 6 s")
	t.Parallel()
	c := newInCluster(t, 2*time.Second)
	c.change()
	c.follows("at the beginning")
	c.Members[0].CutOff()
	c.Members[1].Hang()
	for deadline := time.Now().Add(patience); c.judges() == nil; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is judged on, and nothing can be listed")
		}
	}
	if err := c.judges(); !errors.Is(err, store.ErrStale) {
		t.Errorf("error %v, want that the configuration is stale", err)
	}
	waiting := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		snapshot, err := c.judging.Fresh(ctx)
		if err == nil {
			c.judging.Release(snapshot)
		}
		waiting <- err
	}()
	c.Members[0].Heal()
	c.Members[1].Heal()
	if err := <-waiting; err != nil {
		t.Errorf("a review that waited for the quorum: %v", err)
	}
	c.change()
	c.follows("with a quorum again")
}

func TestCompactionUnderAWatcherLosesNoChange(t *testing.T) {
	citest.Gate(t, "waits for watches that are cut off: 4 s")
	t.Parallel()
	c := newInCluster(t, 0)
	client := c.Client(c.Options(etcdtest.Root))
	for range 5 {
		c.change()
		for _, m := range c.Members {
			m.Clients.Cut() // the watch has to begin anew, behind the compacted revisions
		}
		for _, m := range c.Members {
			m.Clients.Heal()
		}
		c.change()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := client.Get(ctx, etcdstore.DefaultPrefix)
		for ; err != nil && ctx.Err() == nil; answer, err = client.Get(ctx, etcdstore.DefaultPrefix) {
			<-time.After(10 * time.Millisecond)
		}
		if err == nil {
			_, err = client.Compact(ctx, answer.Header.Revision)
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.follows("after compaction")
	}
}

func TestACommitIsMadeOnceHoweverOftenItIsAskedFor(t *testing.T) {
	citest.Gate(t, "waits for members of an etcd that are slow: 7 s")
	t.Parallel()
	c := newInCluster(t, 0)
	base, err := c.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Whichever member is asked first, its answer comes late or never, and the change may have been made.
	for i, m := range c.Members {
		m.Clients.Delay(time.Duration(i) * time.Second)
	}
	for n := range int64(3) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		revision, err := c.store.Commit(ctx, base, put(record("b", n+1)))
		if err != nil {
			t.Fatal(err)
		}
		after, err := c.store.Read(ctx, base)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if after.Revision != revision || after.Changes != base.Changes+1 {
			t.Fatalf("change %d became %d at %d, and was said to be at %d", base.Changes+1, after.Changes, after.Revision, revision)
		}
		base = after
	}
}
