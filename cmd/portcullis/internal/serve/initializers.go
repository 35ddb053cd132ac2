package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// initializerConfig are the flags about CREATE requests that are held for their initializers.
type initializerConfig struct {
	keys        string // file; empty for none
	limits      initializer.Limits
	repairAfter time.Duration
	written     int64         // 0: by the quota of the store
	retention   time.Duration // 0: the retention of the store
}

func (c *initializerConfig) bind(f *pflag.FlagSet) {
	f.StringVar(&c.keys, "initializer-keys", "",
		"file of the keys that encrypt staged objects in etcd: a line is NAME:KEY, with 32 bytes in base64; the first encrypts, all decrypt; "+
			"it is read again when it changes (default: they are not encrypted)")
	f.IntVar(&c.limits.Holds, "initializer-holds", initializer.DefaultHolds, "most CREATE requests that are held for their initializers")
	f.IntVar(&c.limits.HoldsPerCluster, "initializer-holds-per-cluster", 0,
		"most held requests of one cluster; it never gets more than it leaves free for others (default: no other limit)")
	f.Int64Var(&c.limits.Bytes, "initializer-bytes", initializer.DefaultBytes, "most bytes of the held objects")
	f.Int64Var(&c.limits.BytesPerCluster, "initializer-bytes-per-cluster", 0,
		"most bytes of the held objects of one cluster; it never gets more than it leaves free for others (default: no other limit)")
	f.IntVar(&c.limits.ObjectBytes, "initializer-object-bytes", initializer.DefaultObjectBytes,
		"largest object that is held, in bytes; etcd has a limit of its own (--max-request-bytes)")
	f.DurationVar(&c.repairAfter, "initializer-repair-after", staged.DefaultRepairAfter,
		"age at which any staged object is deleted, longer than any review; a minute is added for clocks that differ")
	f.Int64Var(&c.written, "initializer-written-bytes", 0,
		"most bytes of staged objects that are written to etcd within --initializer-retention, whose old versions fill it; a cluster never writes more "+
			"than it leaves free for others (default: with --data-dir a tenth of --store-quota, else 512 MiB)")
	f.DurationVar(&c.retention, "initializer-retention", 0,
		"how long etcd keeps old versions (--auto-compaction-retention); the bytes that authors write count for as long (default: with --data-dir a minute, else 5m)")
}

func (c *initializerConfig) validate() error {
	if c.repairAfter <= 0 {
		return fmt.Errorf("--initializer-repair-after %s: must be longer than the longest review", c.repairAfter)
	}
	if c.written < 0 || c.retention < 0 {
		return errors.New("--initializer-written-bytes and --initializer-retention must not be below zero")
	}
	l := c.limits
	if l.Holds <= 0 || l.Bytes <= 0 || l.ObjectBytes <= 0 || l.HoldsPerCluster < 0 || l.BytesPerCluster < 0 {
		return errors.New("--initializer-holds, --initializer-bytes and --initializer-object-bytes must be above zero, " +
			"and those per cluster not below it")
	}
	return nil
}

// initializers hold CREATE requests. It is nil without an etcd.
type initializers struct {
	keys   *staged.Keyring // nil: staged objects are not encrypted
	store  *staged.Store
	stager *initializer.Stager
}

// open opens the store of staged objects in the etcd of the configuration. It adds the options of flags to o. The file of keys is its only I/O.
// Without an etcd it returns nil.
func (c *initializerConfig) open(s *stores, id string, o staged.Options) (*initializers, error) {
	if s.client == nil {
		if c.keys != "" {
			return nil, errors.New("--initializer-keys: objects are staged in etcd, and there is none: give --data-dir or --etcd too")
		}
		return nil, nil //nolint:nilnil // there is nothing to open
	}
	i := &initializers{}
	var err error
	if c.keys != "" {
		if i.keys, err = staged.OpenKeyring(c.keys, o.Logger); err != nil {
			return nil, fmt.Errorf("--initializer-keys: %w", err)
		}
	}
	o.Client, o.Keys, o.RepairAfter = s.client, i.keys, c.repairAfter
	o.Retention, o.WrittenBytes = s.writtenWithin(c.retention)
	o.WrittenBytes = cmp.Or(c.written, o.WrittenBytes)
	i.store, err = staged.New(o)
	if err != nil {
		return nil, err
	}
	i.stager, err = initializer.NewStager(initializer.Options{Store: i.store, ID: id, Limits: c.limits, Metrics: o.Metrics, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// storeUsage returns how full the store was last; nil without one.
func (a *app) storeUsage() func() *etcdstore.Usage {
	if a.initializers == nil {
		return nil
	}
	return a.initializers.store.Usage
}

// Run follows the staged objects until ctx ends and the last hold has ended.
func (i *initializers) Run(ctx context.Context) error {
	if i == nil {
		return nil
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var parts errgroup.Group
	parts.Go(func() error { return i.store.Run(following) })
	if i.keys != nil {
		parts.Go(func() error { return i.keys.Run(following) })
	}
	<-ctx.Done()
	i.stager.Close()
	stop()
	return parts.Wait()
}

// dispatched is the stager as the dispatcher takes it; nil without an etcd.
func (i *initializers) dispatched() dispatcher.Stager {
	if i == nil {
		return nil
	}
	return holds{i.stager}
}

// holds is an [initializer.Stager] as a [dispatcher.Stager].
type holds struct{ stager *initializer.Stager }

// Stage implements [dispatcher.Stager].
func (h holds) Stage(r *review.Request) (dispatcher.Hold, error) {
	hold, err := h.stager.Stage(r)
	if err != nil {
		return nil, err
	}
	return hold, nil
}
