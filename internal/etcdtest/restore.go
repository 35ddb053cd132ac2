package etcdtest

import (
	"os"
	"sync"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Restore makes all members anew from a snapshot, so many revisions ahead of it.
func (c *Cluster) Restore(file string, bump uint64) {
	c.t.Helper()
	for _, m := range c.Members {
		if m.Runs() {
			m.Kill()
		}
		s := m.settings("", "")
		if err := os.RemoveAll(s.Dir); err != nil {
			c.t.Fatal(err)
		}
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, Name: m.name, OutputDataDir: s.Dir, PeerURLs: []string{"http://" + m.peers.addr()},
			InitialCluster: s.InitialCluster, InitialClusterToken: s.InitialClusterToken,
			RevisionBump: bump, MarkCompacted: true,
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	var starting sync.WaitGroup
	for _, m := range c.Members {
		starting.Go(m.Restart)
	}
	starting.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}
