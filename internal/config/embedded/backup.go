package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap/zapcore"
)

const (
	// etcdDir is the directory of etcd in the data directory.
	etcdDir = "etcd"
	// restoringDir is where a store is restored to until it is whole.
	restoringDir = "restoring"
	// revisionBump is how far a restored store is ahead of its backup, in revisions: farther than any reader can have been since.
	revisionBump = 1 << 40
)

// ErrExists is the error of Restore when the data directory holds a store.
var ErrExists = errors.New("the data directory holds a store already")

// Backup writes the database as it is at this moment, followed by its SHA-256, in pieces of 32 KiB. Other writes go on
// meanwhile; space that they free is used again once it has returned.
func (s *Server) Backup(w io.Writer) error {
	database := s.etcd.Server.Backend().Snapshot()
	defer func() { _ = database.Close() }() // it was read
	sum := sha256.New()
	if _, err := database.WriteTo(io.MultiWriter(w, sum)); err != nil {
		return fmt.Errorf("reading the database: %w", err)
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// RestoreOptions configure a restore. Dir and File are required.
type RestoreOptions struct {
	// Dir is the data directory. No process may use it, and it must hold no store.
	Dir string
	// File is a whole file that Backup has written.
	File string
	// Finish, if set, is given the restored store before others can see it. An error leaves the data directory without a
	// store.
	Finish func(context.Context, *clientv3.Client) error
	// Logger receives the warnings of etcd; nil logs nothing.
	Logger *slog.Logger
}

// Restore makes a store from a backup. It creates the whole store or none. Its revision is far past the revision of the
// backup, so that no reader takes the next writes for the lost ones.
//
// Errors: ErrLocked, ErrExists, ErrNotWhole, or an error of the file system.
func Restore(ctx context.Context, o RestoreOptions) error {
	if err := Verify(o.File); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("the data directory: %w", err)
	}
	l, err := acquire(filepath.Join(o.Dir, lockFile))
	if err != nil {
		return err
	}
	defer l.Close()
	there, work := filepath.Join(o.Dir, etcdDir), filepath.Join(o.Dir, restoringDir)
	if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%w: %s", ErrExists, there), err)
	}
	if err := os.RemoveAll(work); err != nil { // of a restoration that was killed
		return fmt.Errorf("the data directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // the next restoration looks again
	if err := o.restore(ctx, work); err != nil {
		return fmt.Errorf("restoring %s: %w", o.File, err)
	}
	return os.Rename(filepath.Join(work, etcdDir), there)
}

// restore makes the store in a data directory of its own.
func (o *RestoreOptions) restore(ctx context.Context, dir string) error {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c := settings(Options{Dir: dir, Logger: o.Logger}, zapcore.WarnLevel)
	err := snapshot.NewV3(zapTo(o.Logger, zapcore.WarnLevel)).Restore(snapshot.RestoreConfig{
		SnapshotPath: o.File, Name: c.Name, OutputDataDir: c.Dir, PeerURLs: []string{c.AdvertisePeerUrls[0].String()},
		InitialCluster: c.InitialCluster, InitialClusterToken: c.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return err
	}
	s, err := Start(ctx, Options{Dir: dir, Logger: o.Logger})
	if err != nil {
		return err
	}
	defer s.Close()
	if o.Finish == nil {
		return nil
	}
	return o.Finish(ctx, s.Client())
}
