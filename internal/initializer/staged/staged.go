// Package staged keeps the objects of held CREATE requests in etcd, one key an object, and tells of their changes.
//
// Each object is under a lease of its own, so that it disappears when its dispatcher does not end the hold. Every write is a
// compare-and-swap on the revision of the key. [Store.Run] lists and watches all objects of all dispatchers once; List, Watch
// and Wait read its copy, so that an object is in memory once, however many read it.
//
// The package does not know which changes are allowed: package initializer does. An object that is returned, or that was given to
// the store, is never written again. A [Store] may be used concurrently.
package staged

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// Errors that callers tell apart.
var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("there is no such staged object")
	// ErrConflict: the object has another uid or resource version.
	ErrConflict = errors.New("the staged object has been changed meanwhile")
	// ErrUnreadable: the object cannot be decrypted or decoded here, or its cluster has no memory left for it; then the error is a *memory.FullError too.
	ErrUnreadable = errors.New("a staged object cannot be read")
	// ErrUnavailable: etcd did not answer, or has refused a write for a reason that is not the caller's.
	ErrUnavailable = errors.New("etcd does not answer")
	// ErrTooOld: the events after a version are not known any more. List, and watch from there.
	ErrTooOld = errors.New("the resource version is too old")
	// ErrSlow: the reader of a watch has not taken its events in time. List, and watch from there.
	ErrSlow = errors.New("the reader of the watch is too slow")
	// ErrStopped: the store has stopped.
	ErrStopped = errors.New("the store of staged objects has stopped")
)

// ExistsError is the error of Create when there is an object of this key.
type ExistsError struct {
	// Object is the existing object.
	Object *initializerv1.StagedObject
}

// Error implements error.
func (e *ExistsError) Error() string { return "there is a staged object of this name" }

// LeaseID is the lease of a staged object.
type LeaseID = clientv3.LeaseID

// Options say where staged objects are.
type Options struct {
	// Client reaches etcd; required. It stays the caller's.
	Client *clientv3.Client
	// Prefix is in front of all keys; empty means etcdstore.DefaultPrefix. It ends with a slash. The keys of staged objects
	// begin with it and "staged/".
	Prefix string
	// Keys encrypt the objects in etcd; nil means that they are not encrypted.
	Keys *Keyring
	// RepairAfter is the age of an object that is deleted, also if another dispatcher has staged it; 0 means DefaultRepairAfter. Objects without a lease are
	// deleted at any age.
	RepairAfter time.Duration
	// WrittenBytes bounds the bytes that are written within Retention for all clusters; 0 means etcdstore.DefaultWrittenBytes. A cluster writes at most as much as
	// it leaves free.
	WrittenBytes int64
	// Retention is how long etcd keeps old versions; 0 means etcdstore.DefaultRetention.
	Retention time.Duration
	// Memory is where the objects in memory are booked to their clusters, also those that other dispatchers have staged; nil means nowhere. An object that
	// finds no room is not kept: it is missing in List and Watch, and Get and Wait fail.
	Memory *memory.Ledger
	// Now is the clock of Retention; nil means time.Now.
	Now func() time.Time
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Logger receives failures of etcd, and objects that cannot be read; nil logs nothing.
	Logger *slog.Logger
}

// Store keeps staged objects.
type Store struct {
	options Options // complete
	prefix  string  // of the keys of objects
	cache   *cache
	written *etcdstore.WriteBudget
	usage   atomic.Pointer[etcdstore.Usage] // as it was read last; nil before
	metrics *instrumentation
}

// New returns a store. It does no I/O.
func New(o Options) (*Store, error) {
	if o.Client == nil {
		return nil, errors.New("staged: no etcd to keep anything in")
	}
	o.Prefix = cmp.Or(o.Prefix, etcdstore.DefaultPrefix)
	if !strings.HasSuffix(o.Prefix, "/") {
		return nil, fmt.Errorf("staged: the prefix %q has to end with a slash", o.Prefix)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.RepairAfter < 0 {
		return nil, fmt.Errorf("staged: objects cannot be deleted at an age of %s", o.RepairAfter)
	}
	o.RepairAfter = cmp.Or(o.RepairAfter, DefaultRepairAfter)
	s := &Store{options: o, prefix: o.Prefix + "staged/", cache: newCache()}
	if o.Now == nil {
		o.Now = time.Now
	}
	var err error
	s.written, err = etcdstore.NewWriteBudget(etcdstore.WriteBudgetOptions{
		Total: cmp.Or(o.WrittenBytes, etcdstore.DefaultWrittenBytes), Retention: cmp.Or(o.Retention, etcdstore.DefaultRetention),
		QuotaPercent: quotaPercent, Usage: s.usage.Load, Now: o.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("staged: %w", err)
	}
	if s.metrics, err = newInstrumentation(s.cache, s, o.Metrics); err != nil {
		return nil, fmt.Errorf("staged: %w", err)
	}
	return s, nil
}

// parseVersion reads a resource version that the store has given out.
func parseVersion(version string) (int64, error) {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("resource version %q: want a number that this service has given", version)
	}
	return n, nil
}

func formatVersion(revision int64) string { return strconv.FormatInt(revision, 10) }

// requestTimeout bounds a request of etcd that is not a write for a caller with a deadline.
const requestTimeout = 2 * time.Second
