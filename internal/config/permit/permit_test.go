package permit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is a dispatcher that judges.
type live struct {
	mu     sync.Mutex
	permit *store.Permit
	begun  time.Time
}

func (l *live) Permit(p *store.Permit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.permit = p
}

func (l *live) Permitted() *store.Permit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.permit.Holds(time.Now()) {
		return l.permit
	}
	return nil
}

func (l *live) Configuration() store.Configuration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Configuration{Begun: l.begun}
}

// wipe makes it a store that has never had a configuration.
func (l *live) wipe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = time.Time{}
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count is how often a text was logged.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// process is one start of a dispatcher.
type process struct {
	*Permits
	*live

	log  journal
	file string
	stop func()
}

func start(t *testing.T, file string) *process {
	t.Helper()
	p := &process{live: &live{begun: time.Now()}, file: file}
	var err error
	if p.Permits, err = New(Options{Live: p.live, File: file, Logger: slog.New(slog.NewTextHandler(&p.log, nil))}); err != nil {
		t.Fatal(err)
	}
	p.Restore()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return p
}

func (p *process) kept() bool {
	_, err := os.Stat(p.file)
	return err == nil
}

const (
	holds = "a permit to serve stale holds"
	ended = "a permit to serve stale has ended"
)

// pass lets fake time pass and everything due in it happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

func give(t *testing.T, p *process, life time.Duration) {
	t.Helper()
	if _, err := p.Give(life, "ann", "the store burns"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestAPermitIsSaidEachMinuteUntilItLapses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, filepath.Join(dir, "state", FileName))
		defer p.stop()
		pass(time.Hour)
		if p.log.count("\n") != 0 {
			t.Errorf("without a permit the log says %s", p.log.text.String())
		}
		give(t, p, 2*time.Minute+30*time.Second)
		if p.log.count(holds) != 1 || !p.kept() {
			t.Error("it is not said, or not kept")
		}
		pass(2 * time.Minute)
		if n := p.log.count(holds); n != 3 || p.log.count(ended) != 0 {
			t.Errorf("after two minutes it was said %d times", n)
		}
		pass(30 * time.Second)
		if p.log.count(ended) != 1 || p.kept() || p.Permitted() != nil {
			t.Error("it has lapsed, and is not forgotten")
		}
		pass(time.Hour)
		if p.log.count(holds) != 3 {
			t.Error("it has lapsed, and is said to hold")
		}
	})
}

func TestAPermitIsRestoredUntilItLapses(t *testing.T) {
	file := filepath.Join(t.TempDir(), FileName)
	synctest.Test(t, func(t *testing.T) {
		first := start(t, file)
		give(t, first, time.Hour)
		first.stop()
		pass(time.Hour - time.Second)
		second := start(t, file)
		if p := second.Permitted(); p == nil || p.Actor != "ann" || second.log.count(holds) != 1 {
			t.Errorf("restored is %+v", p)
		}
		second.stop()
		pass(time.Second)
		third := start(t, file)
		defer third.stop()
		if third.Permitted() != nil || third.kept() {
			t.Error("what has lapsed is restored")
		}
	})
}

func TestARevokedPermitHasEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), FileName)
	synctest.Test(t, func(t *testing.T) {
		p := start(t, file)
		defer p.stop()
		if was, err := p.Revoke(); was != nil || err != nil {
			t.Errorf("without one: %v, %v", was, err)
		}
		give(t, p, time.Hour)
		give(t, p, 2*time.Hour) // in the place of the first
		if was, err := p.Revoke(); was == nil || err != nil {
			t.Errorf("revoked %v, %v", was, err)
		}
		synctest.Wait()
		if p.Permitted() != nil || p.kept() || p.log.count(ended) != 2 {
			t.Errorf("it holds: %s", p.log.text.String())
		}
	})
}

func TestADamagedFileIsNoPermit(t *testing.T) {
	good := func(now time.Time) *store.Permit {
		return &store.Permit{Given: now, Until: now.Add(time.Hour), Actor: "ann", Reason: "x"}
	}
	for what, content := range map[string]func(now time.Time) string{
		"nothing": func(time.Time) string { return "" },
		"a part":  func(now time.Time) string { return written(t, good(now))[:40] },
		"words":   func(time.Time) string { return "until tomorrow" },
		"too much": func(now time.Time) string {
			return strings.Repeat(" ", maxFileBytes+1) + written(t, good(now))
		},
		"another thing": func(time.Time) string { return "{}" },
		"too long a life": func(now time.Time) string {
			p := good(now)
			p.Until = now.Add(store.MaxPermit + time.Second)
			return written(t, p)
		},
	} {
		file := filepath.Join(t.TempDir(), FileName)
		synctest.Test(t, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(content(time.Now())), 0o600); err != nil {
				t.Fatal(err)
			}
			p := start(t, file)
			defer p.stop()
			if p.Permitted() != nil || p.log.count("is not restored") != 1 {
				t.Errorf("%s is a permit, or nobody is told: %s", what, p.log.text.String())
			}
			give(t, p, time.Hour) // in its place
		})
	}
}

func written(t *testing.T, p *store.Permit) string {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWhatCannotBeKeptIsNotPermitted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file", FileName)
	if err := os.WriteFile(filepath.Dir(file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := start(t, file)
		defer p.stop()
		if _, err := p.Give(time.Hour, "ann", "x"); err == nil || p.Permitted() != nil {
			t.Errorf("permitted, %v", err)
		}
		p.wipe()
		if _, err := p.Give(time.Hour, "ann", "x"); !errors.Is(err, ErrNoConfiguration) {
			t.Errorf("without a configuration: %v", err)
		}
		var invalid *InvalidError
		if _, err := p.Give(time.Hour, "ann", ""); !errors.As(err, &invalid) {
			t.Errorf("without a reason: %v", err)
		}
	})
}

func TestWithoutADirectoryAPermitEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, "")
		give(t, p, time.Hour)
		if p.Permitted() == nil || p.Kept() {
			t.Error("not permitted, or said to be kept")
		}
		if _, err := p.Revoke(); err != nil {
			t.Error(err)
		}
		p.stop()
	})
}
