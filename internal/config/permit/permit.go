// Package permit keeps the permit of one dispatcher to judge by a stale configuration. Operators give it through AdminService
// ([Service]). [Permits] keeps it in a file, since the store cannot be asked at that time, and logs it until it lapses.
// store.Store decides how it counts for reviews.
package permit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

const (
	// FileName is the name of the file of a permit in the directory of a dispatcher.
	FileName = "serve-stale.json"
	// ReminderInterval is how often a permit that holds is logged.
	ReminderInterval = time.Minute
	// maxFileBytes bounds the file: a permit has much less.
	maxFileBytes = 16 << 10
)

// ErrNoConfiguration is the error of Permits.Give where there is nothing to judge by.
var ErrNoConfiguration = errors.New("this dispatcher has no configuration, not even an old one: a permit would permit nothing")

// Live judges by a permit. *store.Store is one; its methods may be called concurrently.
type Live interface {
	// Permit lets reviews be judged by the last configuration; nil takes that back.
	Permit(p *store.Permit)
	// Permitted is the permit that holds; nil if none does.
	Permitted() *store.Permit
	// Configuration is the one in force.
	Configuration() store.Configuration
}

// Options configure Permits. Live is required.
type Options struct {
	// Live gets the permit.
	Live Live
	// File is where the permit is kept; empty means that it ends with the process. Its directory is made when it is needed.
	File string
	// Logger gets the begin and the end of a permit, and reminders; nil means none.
	Logger *slog.Logger
}

// Permits has the permit of one dispatcher. Its methods may be called concurrently; Run is called once.
type Permits struct {
	o       Options
	changed chan struct{} // holds one token while Run does not know of a change

	mu sync.Mutex // held while the permit and its file change
}

// New returns permits of which none is given yet.
func New(o Options) (*Permits, error) {
	if o.Live == nil {
		return nil, errors.New("permit: Live is required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Permits{o: o, changed: make(chan struct{}, 1)}, nil
}

// Kept reports whether permits are restored when the process is started again.
func (k *Permits) Kept() bool { return k.o.File != "" }

// Restore puts the permit of the file into force, if it has not lapsed. A file that cannot be read, or does not hold a permit,
// permits nothing, and is logged.
func (k *Permits) Restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.Kept() {
		return
	}
	p, err := read(k.o.File, time.Now())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		k.o.Logger.Error("the permit to serve stale is not restored: give it again if it is needed", "file", k.o.File, "error", err)
	case p.Holds(time.Now()):
		k.put(p)
	default:
		k.forget()
	}
}

// Give permits for so long. Nothing is permitted if that cannot be kept.
//
// Errors: ErrNoConfiguration, the errors of store.Permit.Validate, and errors of the file system.
func (k *Permits) Give(life time.Duration, actor, reason string) (*store.Permit, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now().Round(0) // by the wall clock, which a suspended machine does not stop
	p := &store.Permit{Given: now, Until: now.Add(life), Actor: actor, Reason: reason}
	if err := p.Validate(now); err != nil {
		return nil, &InvalidError{err}
	}
	if c := k.o.Live.Configuration(); c.Begun.IsZero() {
		return nil, ErrNoConfiguration
	}
	if k.Kept() {
		if err := write(k.o.File, p); err != nil {
			return nil, err
		}
	}
	k.put(p)
	return p, nil
}

// InvalidError is the error of an invalid permit.
type InvalidError struct{ err error }

// Error implements error.
func (e *InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.err }

// Revoke ends the permit, and returns it; nil if none held. It has ended also when there is an error: the file is still there.
func (k *Permits) Revoke() (*store.Permit, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.o.Live.Permitted()
	k.put(nil)
	return p, k.remove()
}

// put puts a permit into force; nil ends it. mu is held.
func (k *Permits) put(p *store.Permit) {
	k.o.Live.Permit(p)
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run logs the permit that holds until ctx ends, and removes a permit that has lapsed.
func (k *Permits) Run(ctx context.Context) error {
	var said *store.Permit
	timer := time.NewTimer(ReminderInterval)
	defer timer.Stop()
	for due := false; ; {
		p := k.o.Live.Permitted()
		if due || p != said {
			k.say(said, p)
		}
		said, due = p, false
		rest := ReminderInterval
		if p != nil {
			rest = min(rest, time.Until(p.Until))
		}
		timer.Reset(rest)
		select {
		case <-k.changed: // also for a permit that was logged already
		case <-timer.C:
			due = true
		case <-ctx.Done():
			return nil
		}
	}
}

// say logs the permit that holds now, and the end of the permit that was logged before.
func (k *Permits) say(before, now *store.Permit) {
	if before != nil && before != now {
		k.o.Logger.Warn("a permit to serve stale has ended", "actor", before.Actor, "until", before.Until)
		if now == nil {
			k.lapse()
		}
	}
	if now == nil {
		return
	}
	c := k.o.Live.Configuration()
	k.o.Logger.Warn("a permit to serve stale holds: reviews are judged by the last configuration, however old it is",
		"actor", now.Actor, "reason", now.Reason, "until", now.Until, "stale", !c.Fresh, "age", age(&c), "revision", c.Digest)
}

// age is how old a configuration is; 0 before the first.
func age(c *store.Configuration) time.Duration {
	if c.Begun.IsZero() {
		return 0
	}
	return store.Since(c.Begun).Round(time.Millisecond)
}

// lapse forgets a permit that holds no more.
func (k *Permits) lapse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.o.Live.Permitted() == nil {
		k.forget()
	}
}

// forget removes the file of a permit that has ended. It would not be restored in any case. mu is held.
func (k *Permits) forget() {
	if err := k.remove(); err != nil {
		k.o.Logger.Warn("the file of a permit that has ended is still there", "error", err)
	}
}

func (k *Permits) remove() error {
	if !k.Kept() {
		return nil
	}
	if err := os.Remove(k.o.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the permit: %w: remove it by hand, it would be restored by a restart", err)
	}
	return nil
}

// read reads a permit from a file.
func read(file string, now time.Time) (*store.Permit, error) {
	data, err := certs.ReadFile(file, maxFileBytes)
	if err != nil {
		return nil, err
	}
	p := &store.Permit{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("it holds no permit: %w", err)
	}
	if err := p.Validate(now); err != nil {
		return nil, fmt.Errorf("it holds no permit: %w", err)
	}
	return p, nil
}

// write keeps a permit in a file, whole or not at all.
func write(file string, p *store.Permit) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("a permit that cannot be written: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("the directory of the permit: %w", err)
	}
	return certs.WriteFile(file, append(data, '\n'), 0o600)
}
