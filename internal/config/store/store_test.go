package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// memory is a source in memory. Its listings take as long as delay says.
type memory struct {
	name string

	mu    sync.Mutex
	files map[string]string
	err   error
	delay time.Duration
	begun []time.Time
	wake  func()
	watch error
}

func (m *memory) Name() string { return m.name }

func (m *memory) List(ctx context.Context) (config.Listing, error) {
	m.mu.Lock()
	m.begun = append(m.begun, time.Now())
	delay, err, listing := m.delay, m.err, listingOf(m.name, m.files).Listing
	listing.Revision = fmt.Sprint(m.files)
	m.mu.Unlock()
	if delay > 0 { // timers that have ended before they are waited for crash the race detector, where two of a bubble do so at once
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return config.Listing{}, ctx.Err()
		}
	}
	return listing, err
}

func (m *memory) Watch(ctx context.Context, notify func()) error {
	m.mu.Lock()
	m.wake = notify
	err := m.watch
	m.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// set changes the content of the source, and whether it can be listed.
func (m *memory) set(files map[string]string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files, m.err = files, err
}

func (m *memory) slow(delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = delay
}

func (m *memory) lists() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.begun)
}

func (m *memory) notify() {
	m.mu.Lock()
	wake := m.wake
	m.mu.Unlock()
	wake()
}

// inBubble runs a store in a bubble of fake time until the test function returns.
func inBubble(t *testing.T, opts Options, test func(t *testing.T, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		test(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Error("Run:", err)
		}
	})
}

// pass lets fake time pass and everything due in it happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

func docs(names ...string) map[string]string {
	all := ""
	for _, name := range names {
		all += clusterDoc(name, "1")
	}
	return map[string]string{"a.yaml": all}
}

// mustFresh is the revision that a review would be judged by.
func mustFresh(t *testing.T, s *Store) string {
	t.Helper()
	snapshot, err := s.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Revision()
}

func TestTheStoreListsEverySecond(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, _ *Store) {
		m.slow(300 * time.Millisecond)
		pass(10*time.Second + 500*time.Millisecond)
		if got := m.lists(); got != 11 {
			t.Errorf("%d listings in 10.5 s, want 11: the interval is from beginning to beginning", got)
		}
	})
}

func TestFreshWaitsForTheFirstListing(t *testing.T) {
	m := &memory{name: "m", files: docs("a"), delay: 2 * time.Second}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		if err := s.Ready(); !errors.Is(err, ErrStale) {
			t.Errorf("ready before the first listing: %v", err)
		}
		begun := time.Now()
		mustFresh(t, s)
		if waited := time.Since(begun); waited != 2*time.Second {
			t.Errorf("waited %s", waited)
		}
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestAConfigurationIsUsedUntilItsListingBeganMaxAgeAgo(t *testing.T) {
	m := &memory{name: "m", files: docs("a"), delay: 200 * time.Millisecond}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.set(docs("a"), errors.New("the disk is gone"))
		pass(DefaultMaxAge - 200*time.Millisecond) // the listing began 200 ms before it ended
		if _, err := s.Fresh(t.Context()); err != nil {
			t.Errorf("5 s after the listing began: %v", err)
		}
		pass(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := s.Fresh(ctx)
		if !errors.Is(err, ErrStale) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the disk is gone") {
			t.Errorf("past 5 s: %v", err)
		}
		if waited := time.Since(begun); waited != 3*time.Second-AnswerReserve {
			t.Errorf("waited %s, not until its context is about to end", waited)
		}
		if got := codes(s.Configuration().Problems); got != config.CodeSource {
			t.Errorf("problems %q", got)
		}
	})
}

func TestReviewsThatWaitGoOnWhenAListingSucceeds(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.set(nil, errors.New("gone"))
		pass(7 * time.Second)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if mustFresh(t, s) == before {
					t.Error("judged by the old configuration")
				}
			})
		}
		pass(time.Second)
		m.set(docs("b"), nil)
		wg.Wait()
		if got := codes(s.Configuration().Problems); got != "" {
			t.Errorf("problems %q", got)
		}
	})
}

func TestTheReviewsOfAClusterThatWaitAreAsManyAsItLeavesFree(t *testing.T) {
	m := &memory{name: "m", err: errors.New("gone")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wait := func(cluster string) {
			wg.Go(func() {
				if _, err := take(ctx, s, cluster, 0); !errors.Is(err, context.Canceled) {
					t.Errorf("a review of %s within the bound: %v", cluster, err)
				}
			})
		}
		for range MaxWaiters / 2 {
			wait("flood")
		}
		synctest.Wait()
		if _, err := take(t.Context(), s, "flood", 0); !errors.Is(err, ErrStale) {
			t.Errorf("one more: %v", err)
		}
		wait("quiet")
		synctest.Wait()
		cancel()
		wg.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := take(ctx, s, "flood", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the others went: %v", err)
		}
	})
}

func TestWaitersEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Sources: []config.Source{&memory{name: "m", err: errors.New("gone")}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		if _, err := s.Fresh(t.Context()); !errors.Is(err, ErrStale) {
			t.Errorf("got %v", err)
		}
	})
}

func TestEverySourceHasToBeFresh(t *testing.T) {
	one, two := &memory{name: "one", files: docs("a")}, &memory{name: "two", files: docs("b"), delay: time.Second}
	inBubble(t, Options{Sources: []config.Source{one, two}}, func(t *testing.T, s *Store) {
		pass(500 * time.Millisecond)
		if s.Ready() == nil {
			t.Error("ready with one of two sources")
		}
		mustFresh(t, s)
		one.set(nil, errors.New("gone"))
		pass(6 * time.Second)
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "source one") {
			t.Errorf("one source is stale: %v", err)
		}
	})
}

func TestASnapshotIsCompiledOncePerRevision(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		snapshot := func() *match.Snapshot {
			pass(10 * time.Second)
			mustFresh(t, s)
			c := s.Configuration()
			return c.Snapshot()
		}
		first := snapshot()
		m.set(map[string]string{"other.yaml": "# other words\n---\n" + clusterDoc("a", "1")}, nil)
		if snapshot() != first {
			t.Error("another snapshot of the same revision")
		}
		m.set(docs("b"), nil)
		second := snapshot()
		if second == first || snapshot() != second {
			t.Error("one snapshot of two revisions, or two of one")
		}
	})
}

func TestSubscribersAreToldInOrder(t *testing.T) {
	var told []string
	var running atomic.Pointer[Store]
	opts := Options{
		OnSnapshot: func(snapshot *match.Snapshot) {
			if s := running.Load(); s != nil {
				over, cancel := context.WithCancel(context.Background())
				cancel() // before the first one, Fresh would wait for it
				if current, err := s.Fresh(over); err == nil && current == snapshot {
					t.Error("it is in force before it is told")
				}
			}
			told = append(told, "snapshot")
		},
		OnClusters: func(clusters []*kinds.Cluster) {
			names := ""
			for _, c := range clusters {
				names += c.Metadata.Name
			}
			told = append(told, names)
		},
	}
	m := &memory{name: "m", files: docs("b", "a")}
	opts.Sources = []config.Source{m}
	inBubble(t, opts, func(_ *testing.T, s *Store) {
		running.Store(s)
		pass(2 * time.Second)
		m.set(map[string]string{"a.yaml": docs("a", "b")["a.yaml"] + goodHook}, nil)
		pass(2 * time.Second)
		m.set(nil, nil)
		pass(2 * time.Second)
	})
	if diff := gocmp.Diff([]string{"ab", "snapshot", "snapshot", "", "snapshot"}, told); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

func TestAChangeThatASourceNoticedIsListedSoon(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		pass(100 * time.Millisecond)
		m.set(docs("b"), nil)
		for range 10 {
			m.notify()
		}
		lists := m.lists()
		pass(WatchDelay)
		if mustFresh(t, s) == before {
			t.Error("not in force yet")
		}
		if got := m.lists() - lists; got != 1 {
			t.Errorf("%d listings for one burst", got)
		}
	})
}

// TestANormalConfigurationIsOneLineInTheLog puts our own kinds and the real configurations of the corpus into force.
func TestANormalConfigurationIsOneLineInTheLog(t *testing.T) {
	files := map[string]string{"own.yaml": goodHook + "---\n" + goodRoute + "---\n" + goodCluster}
	names := map[config.Key]bool{}
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "shared", "corpus", "webhookconfigurations", "*.v1.*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skip("the corpus of real documents is not here")
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := configtest.Decode(path, data)
		for _, o := range objects {
			if !names[o.Key] {
				names[o.Key] = true
				files[o.Key.String()+".json"] = string(o.Manifest)
			}
		}
	}
	var log strings.Builder
	source := &memory{name: "m", files: files}
	opts := Options{Sources: []config.Source{source}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		pass(5 * time.Second)
		if problems := s.Configuration().Problems; len(problems) > 0 {
			t.Errorf("problems %q", lines(problems))
		}
	})
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "configuration settled") {
		t.Errorf("the log is\n%s", text)
	}
}

func TestASourceThatCannotBeWatchedIsListed(t *testing.T) {
	m := &memory{name: "m", files: docs("a"), watch: errors.New("no more inotify instances")}
	inBubble(t, Options{Sources: []config.Source{m}}, func(t *testing.T, s *Store) {
		before := mustFresh(t, s)
		m.set(docs("b"), nil)
		pass(time.Second)
		if mustFresh(t, s) == before {
			t.Error("not in force yet")
		}
		if problems := s.Configuration().Problems; len(problems) != 1 || problems[0].Severity != match.SeverityWarning {
			t.Errorf("problems %q", lines(problems))
		}
	})
}

func TestAListingThatHangsIsAFailedOne(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	inBubble(t, Options{Sources: []config.Source{m}, MaxAge: 2 * time.Second}, func(t *testing.T, s *Store) {
		mustFresh(t, s)
		m.slow(time.Hour)
		pass(4 * time.Second)
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "deadline") {
			t.Errorf("a listing hangs: %v", err)
		}
		m.slow(0)
		mustFresh(t, s)
	})
}

func TestWhatIsSaidAboutAConfigurationFollowsIt(t *testing.T) {
	m := &memory{name: "m", files: map[string]string{"a.yaml": goodHook + "  clientConfig: {url: 'https://example.com/'}\n"}}
	inspect := func(_ context.Context, s *match.Snapshot, objects []config.Object) config.Problems {
		return config.ProblemsOf([]match.Finding{{Severity: match.SeverityWarning, Code: "c", Path: s.Hooks()[0].Path(".rules"), Message: "m"}}, objects)
	}
	inBubble(t, Options{Sources: []config.Source{m}, Inspect: inspect}, func(t *testing.T, s *Store) {
		said := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(lines(s.Configuration().Problems), "\n"); got != want {
				t.Errorf("problems %s\nwant %s", got, want)
			}
		}
		mustFresh(t, s)
		said(`a.yaml:6: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].rules: m`)
		// A comment changes no revision, and the line of everything.
		route := strings.Replace(goodRoute, "imagepolicy.example.com", "other.example.com", 1)
		m.set(map[string]string{"a.yaml": "# a comment\n" + m.files["a.yaml"] + "---\n" + route}, nil)
		pass(time.Second)
		const routed = `HookRoute "imagepolicy": spec.hook: configuration "imagepolicy" has no hook "other.example.com": mend the name, or remove the route`
		said("a.yaml:19: " + routed + "\n" + `a.yaml:7: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].rules: m`)
		m.set(map[string]string{"a.yaml": "# another\n" + m.files["a.yaml"]}, nil)
		pass(time.Second)
		said("a.yaml:20: " + routed + "\n" + `a.yaml:8: ValidatingWebhookConfiguration "imagepolicy": webhooks[0].rules: m`)
	})
}

func TestSourcesNeedNamesOfTheirOwn(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no source is enough")
	}
	if _, err := New(Options{Sources: []config.Source{&memory{name: "a"}, &memory{name: "a"}}}); err == nil {
		t.Error("two sources of one name")
	}
}

func TestFreshAllocatesNothing(t *testing.T) {
	s := freshStore(t)
	if got := testing.AllocsPerRun(1000, func() { mustFresh(t, s) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkFresh(b *testing.B) {
	s := freshStore(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Fresh(b.Context()); err != nil {
				b.Error(err)
			}
		}
	})
}

// freshStore is a store that is fresh for an hour without running.
func freshStore(t testing.TB) *Store {
	t.Helper()
	s, err := New(Options{Sources: []config.Source{&memory{name: "m"}}, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("r", nil)
	s.publish(&generation{snapshot: snapshot, freshness: freshness{begun: time.Now()}})
	return s
}
