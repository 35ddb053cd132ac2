package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// NewStore returns "store" with its commands.
func NewStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Back up and restore the store of --data-dir",
		Long: `Store makes backups of the store that a dispatcher keeps in its data directory, while it runs, and makes a data directory of a
backup. A store in an etcd of its own is backed up with etcd's tools: docs/configuration-store.md says how.`,
		Example: `  portcullis store backup portcullis.backup --server mesh.example.com:8444 --ca ca.crt --cert me.crt --key me.key
  portcullis store restore --data-dir /var/lib/portcullis portcullis.backup`,
	}
	return cli.Group(cmd, newStoreBackupCommand(), newStoreRestoreCommand())
}

type backupCommand struct {
	file  string
	force bool
	mesh  connect.MeshAddress
}

func newStoreBackupCommand() *cobra.Command {
	var c backupCommand
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of a running dispatcher's store",
		Long: `Backup writes the store as it is at one moment to a file, for its owner alone: everything that was applied, and who did. Only
operators may have it. The file is there whole, with a checksum, or not at all.
` + configureUsage,
		Example: "  portcullis store backup portcullis.backup --ready-file /tmp/ready.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one file to write: portcullis store backup FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.file = args[0]
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.force, "force", false, "replace an existing file")
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *backupCommand) run(ctx context.Context, out io.Writer) error {
	if _, err := os.Lstat(c.file); !errors.Is(err, fs.ErrNotExist) && !c.force {
		return errors.Join(fmt.Errorf("%s is there: name another file, or say --force", c.file), err)
	}
	part, err := os.CreateTemp(filepath.Dir(c.file), "."+filepath.Base(c.file)+".*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // nothing, once it is renamed
	defer part.Close()
	err = c.mesh.Config(ctx, 0, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		return receive(ctx, client, part)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(part.Sync(), part.Close(), embedded.Verify(part.Name())); err != nil {
		return err
	}
	info, err := os.Stat(part.Name())
	if err != nil {
		return err
	}
	if err := os.Rename(part.Name(), c.file); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s has the store, in %d bytes.\n", c.file, info.Size())
	return err
}

func receive(ctx context.Context, client configv1.ConfigServiceClient, w io.Writer) error {
	stream, err := client.Backup(ctx, &configv1.BackupRequest{})
	if err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(piece.GetData()); err != nil {
			return err
		}
	}
}

func newStoreRestoreCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "restore --data-dir DIR FILE",
		Short: "Make a data directory of a backup",
		Long: `Restore makes the store of a data directory that has none. The dispatcher of that directory must not run. Changes after
the backup are gone; revisions go on far past all that were ever seen, and "get changes" names who restored.`,
		Example: "  portcullis store restore --data-dir /var/lib/portcullis portcullis.backup",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which file is the backup, and only one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dataDir == "" {
				return errors.New("--data-dir is missing: name the directory that serve has")
			}
			return restore(cmd.Context(), cmd.OutOrStdout(), dataDir, args[0])
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of serve")
	return cli.WithSettings(cmd)
}

func restore(ctx context.Context, out io.Writer, dataDir, file string) error {
	var state *etcdstore.State
	err := embedded.Restore(ctx, embedded.RestoreOptions{
		Dir: StoreDir(dataDir), File: file, Logger: slog.New(slog.DiscardHandler),
		Finish: func(ctx context.Context, client *clientv3.Client) error {
			s, err := etcdstore.New(etcdstore.Options{Client: client})
			if err != nil {
				return err
			}
			if state, err = s.Read(ctx, nil); err != nil {
				return err
			}
			return s.Restored(ctx, restoreActor())
		},
	})
	switch {
	case errors.Is(err, embedded.ErrExists):
		return fmt.Errorf("%w: name another --data-dir, or move that directory away", err)
	case errors.Is(err, embedded.ErrLocked):
		return fmt.Errorf("%w: stop it first", err)
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(out, "%s has the store as it was at revision %d, with %d objects.\n", dataDir, state.Revision, len(state.Records))
	return err
}

// restoreActor is the actor of the change that a restore makes. It has no certificate: it may write the data directory.
func restoreActor() string {
	if u, err := user.Current(); err == nil {
		return "store restore by " + u.Username
	}
	return "store restore"
}

// StoreDir is where in a data directory the store is.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, "store") }
