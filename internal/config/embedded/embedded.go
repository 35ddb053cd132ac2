// Package embedded runs one etcd inside the process, for installations that one machine is enough for. It is used as an
// external one is, through etcd's own client, but needs no sockets: no other process can reach it.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// Limits of an embedded etcd.
const (
	// DefaultQuotaBytes bounds the database, in bytes, with everything that compaction has not dropped yet. Past it nothing
	// is written until [Server.Defragment]; reading goes on.
	DefaultQuotaBytes = 2 << 30
	// compactAfter is how long old versions of keys stay readable, which only a slow watcher asks for.
	compactAfter = 10 * time.Minute
	// startTimeout bounds the start: a large database takes seconds.
	startTimeout = time.Minute
	// tick and election are how long the only member waits before it leads. etcd's own values allow for a network between members, and
	// delay each start by half a second.
	tick, election = 20 * time.Millisecond, 100 * time.Millisecond
)

// ErrLocked is the error of Start when another process has the data directory.
var ErrLocked = errors.New("another process uses the data directory")

// Options say where the data is. Dir is required.
type Options struct {
	// Dir is the data directory. It is made, for its owner alone, if it is not there.
	Dir string
	// QuotaBytes bounds the database; 0 means DefaultQuotaBytes.
	QuotaBytes int64
	// Logger receives the warnings of etcd; nil logs nothing.
	Logger *slog.Logger
}

// Server is a running etcd. Its methods may be called concurrently.
type Server struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *fileutil.LockedFile
	log    *slog.Logger
	quota  int64
	once   sync.Once // of close
}

// Start opens the data directory, or makes it, and returns when etcd answers. The store has all writes that an earlier
// process acknowledged, also if that was killed.
//
// Errors: ErrLocked, an error of the file system, or the end of ctx.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("embedded: no data directory")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.QuotaBytes = cmp.Or(o.QuotaBytes, DefaultQuotaBytes)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory: %w", err)
	}
	l, err := acquire(filepath.Join(o.Dir, lockFile))
	if err != nil {
		return nil, err
	}
	s := &Server{lock: l, log: o.Logger, quota: o.QuotaBytes}
	if err := s.start(ctx, o); err != nil {
		s.Close()
		return nil, fmt.Errorf("starting the embedded etcd in %s: %w", o.Dir, err)
	}
	return s, nil
}

// start starts etcd, and waits until it answers.
func (s *Server) start(ctx context.Context, o Options) error {
	level := zap.NewAtomicLevelAt(zap.ErrorLevel) // etcd warns of its settings, which are ours
	etcd, err := embed.StartEtcd(settings(o, level))
	if err != nil {
		return err
	}
	s.etcd = etcd
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	level.SetLevel(zap.WarnLevel)
	s.client = v3client.New(etcd.Server)
	return nil
}

// settings returns the configuration of a single etcd that no other process can reach.
func settings(o Options, level zapcore.LevelEnabler) *embed.Config {
	c := embed.NewConfig()
	c.Name = "portcullis"
	c.Dir = filepath.Join(o.Dir, etcdDir)
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.QuotaBackendBytes = o.QuotaBytes
	c.TickMs, c.ElectionMs = uint(tick.Milliseconds()), uint(election.Milliseconds())
	c.MaxTxnOps = etcdstore.MaxTxnOps
	c.MaxRequestBytes = etcdstore.MaxRequestBytes
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = compactAfter.String()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Logger, level))
	return c
}

// Client talks to the server. It ends with the server, and must not be closed.
func (s *Server) Client() *clientv3.Client { return s.client }

// Failed is called when etcd cannot go on, for example because the disk has failed.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops etcd and gives the data directory free. Once is enough.
func (s *Server) Close() { s.once.Do(s.close) }

func (s *Server) close() {
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
	_ = s.lock.Close()
}
