package directory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// looked expects the content of a listing as file:name, and the time until the source wants to be listed again.
func looked(t *testing.T, d *Source, want string, again time.Duration) {
	t.Helper()
	l, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(found(l.Decoded()), " "); got != want || l.Again != again {
		t.Errorf("listed %q, again after %v; want %q, %v", got, l.Again, want, again)
	}
}

// replace renames a new file into a place.
func replace(t *testing.T, path, data string) {
	t.Helper()
	write(t, path+".new", data)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatIsWrittenInPlaceCountsWhenItHasBeenQuiet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	one, two := clusterDoc("one", "1"), clusterDoc("two", "1")
	write(t, file, one+"\n---\n"+two)
	d := directory(t, dir)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		looked(t, d, "a.yaml:one a.yaml:two", 0)
		if waited := time.Since(begun); waited != ReplaceDelay {
			t.Errorf("the first listing has waited %v", waited)
		}
		write(t, file, one)
		looked(t, d, "a.yaml:one a.yaml:two", RewriteDelay)
		<-time.After(RewriteDelay - 1)
		looked(t, d, "a.yaml:one a.yaml:two", 1)
		write(t, file, one+"\n")
		looked(t, d, "a.yaml:one a.yaml:two", RewriteDelay)
		<-time.After(RewriteDelay)
		looked(t, d, "a.yaml:one", 0)
	})
}

func TestAFileThatIsRenamedIntoItsPlaceCountsSoon(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, clusterDoc("one", "1"))
	d := directory(t, dir)
	synctest.Test(t, func(t *testing.T) {
		looked(t, d, "a.yaml:one", 0)
		replace(t, file, clusterDoc("two", "1"))
		looked(t, d, "a.yaml:one", ReplaceDelay)
		<-time.After(ReplaceDelay)
		looked(t, d, "a.yaml:two", 0)
		replace(t, file, clusterDoc("three", "1"))
		looked(t, d, "a.yaml:two", ReplaceDelay)
		write(t, file, clusterDoc("three", "1")+"\n---\n"+clusterDoc("four", "1")) // it was not renamed: somebody writes it
		looked(t, d, "a.yaml:two", RewriteDelay)
		<-time.After(RewriteDelay)
		looked(t, d, "a.yaml:three a.yaml:four", 0)
	})
}

func TestAFileThatIsNewOrGoneCountsSoon(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, clusterDoc("one", "1"))
	d := directory(t, dir)
	synctest.Test(t, func(t *testing.T) {
		looked(t, d, "a.yaml:one", 0)
		write(t, b, clusterDoc("two", "1"))
		looked(t, d, "a.yaml:one", ReplaceDelay)
		<-time.After(ReplaceDelay)
		looked(t, d, "a.yaml:one b.yaml:two", 0)
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
		looked(t, d, "a.yaml:one b.yaml:two", ReplaceDelay)
		write(t, a, clusterDoc("one", "1")) // as an editor does that moves the old file away first
		looked(t, d, "a.yaml:one b.yaml:two", 0)
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
		looked(t, d, "a.yaml:one b.yaml:two", ReplaceDelay)
		<-time.After(ReplaceDelay)
		looked(t, d, "b.yaml:two", 0)
	})
}

func TestAMountThatIsSwappedCountsAtOnce(t *testing.T) {
	m := &mount{t: t, dir: t.TempDir()}
	m.swap(map[string]string{"a.yaml": clusterDoc("a", "1"), "b.yaml": clusterDoc("b", "1")})
	d := directory(t, m.dir)
	looked(t, d, "a.yaml:a b.yaml:b", 0)
	m.swap(map[string]string{"a.yaml": clusterDoc("c", "1")})
	looked(t, d, "a.yaml:c", 0)
}

func TestTheFirstListingWaitsForAFileThatIsBeingWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, clusterDoc("one", "1"))
	synctest.Test(t, func(t *testing.T) {
		writing := func(ctx context.Context) {
			for data := clusterDoc("one", "1"); ctx.Err() == nil; <-time.After(ReplaceDelay / 2) {
				data += "\n"
				write(t, file, data)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		go writing(ctx)
		d := directory(t, dir)
		if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is being written") {
			t.Errorf("while it is written: %v", err)
		}
		synctest.Wait()
		looked(t, d, "a.yaml:one", 0)
	})
}

func TestAFileThatGoesOnChangingIsAFinding(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	data := clusterDoc("one", "1")
	write(t, file, data)
	synctest.Test(t, func(t *testing.T) {
		d := directory(t, dir)
		looked(t, d, "a.yaml:one", 0)
		data += clusterDoc("two", "1")
		revisions := map[string]bool{}
		change := func(each, during time.Duration) (found string) {
			for end := time.Now().Add(during); time.Now().Before(end); <-time.After(each) {
				data += "\n"
				write(t, file, data)
				l, err := d.List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				revisions[l.Revision] = true
				found = codes(l.Decoded().Problems)
			}
			return found
		}
		if got := change(RewriteDelay-1, UnsettledAfter); got != "" {
			t.Errorf("it has changed for less than %s, and is found to be %s", UnsettledAfter, got)
		}
		if got := change(RewriteDelay-1, 2*RewriteDelay); got != config.CodeUnsettled || len(revisions) != 2 {
			t.Errorf("found is %q, in %d revisions", got, len(revisions))
		}
		looked(t, d, "a.yaml:one", 1) // its earlier content counts, for another moment
		<-time.After(RewriteDelay)
		looked(t, d, "a.yaml:one a.yaml:two", 0)
		for range 2 * UnsettledAfter / RewriteDelay {
			if got := change(RewriteDelay, 1); got != "" {
				t.Errorf("one that is written each %s is found to be %s", RewriteDelay, got)
			}
			looked(t, d, "a.yaml:one a.yaml:two", 0) // it asked to be listed now
		}
	})
}

func TestAFirstListingNamesAFileThatGoesOnChanging(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	data := clusterDoc("one", "1")
	write(t, file, data)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*UnsettledAfter)
		defer cancel()
		go func() {
			for ; ctx.Err() == nil; <-time.After(ReplaceDelay / 2) {
				data += "\n"
				write(t, file, data)
			}
		}()
		_, err := directory(t, dir).List(ctx)
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "rename a finished file") {
			t.Errorf("error %v", err)
		}
		cancel()
		<-time.After(RewriteDelay) // the writer ends
	})
}

// impatient is a source that wants to be listed again soon, once.
type impatient struct{ lists atomic.Int64 }

func (*impatient) Name() string { return "impatient" }

func (s *impatient) List(context.Context) (config.Listing, error) {
	if s.lists.Add(1) == 1 {
		return config.Listing{Revision: "1", Again: ReplaceDelay}, nil
	}
	return config.Listing{Revision: "2"}, nil
}

func (*impatient) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func TestASourceIsListedAgainWhenItWantsToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &impatient{}
		s, err := store.New(store.Options{Sources: []config.Source{source}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		for _, step := range []struct {
			after time.Duration
			lists int64
		}{{ReplaceDelay - 1, 1}, {1, 2}, {store.ListInterval - 1, 2}, {1, 3}} {
			<-time.After(step.after)
			synctest.Wait()
			if n := source.lists.Load(); n != step.lists {
				t.Errorf("listed %d times, want %d", n, step.lists)
			}
		}
	})
}
