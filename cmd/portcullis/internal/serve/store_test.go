package serve

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
)

// storeIn runs a dispatcher with a store in a data directory, until stop is called, and returns its ready file.
func storeIn(t *testing.T, dir string) (ready string, stop func()) {
	t.Helper()
	info, stop := storeAs(t, dir, func(*serveConfig) {})
	return readyFileOf(t, info), stop
}

// storeAs is storeIn with a change of its settings. It returns the addresses of the dispatcher.
func storeAs(t *testing.T, dir string, change func(*serveConfig)) (info listen.ReadyInfo, stop func()) {
	t.Helper()
	a, d := sampleApp(t, func(_ *dev, c *serveConfig) {
		c.stores.dataDir, c.stores.operator.Names = dir, []string{devAPIServer}
		c.id = "test"
		c.readyTimeout = time.Nanosecond // nobody serves the samples
		change(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		err := a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil })
		a.control.stores.close()
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	info = within(t, "the dispatcher", started)
	info.ClientCert, info.ClientKey = d.path("certs/"+devClientName+".crt"), d.path("certs/"+devClientName+".key")
	return info, stop
}

func TestAStoreIsBackedUpAndRestored(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	ready, stop := storeIn(t, dir)
	apply := func(documents string) {
		t.Helper()
		if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.Code != 0 {
			t.Fatal(r.Notes)
		}
	}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply(documents)
	if r := clitest.Execute(t, configcli.NewStore(), nil, "backup", file, "--ready-file", ready); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	apply(strings.NewReplacer("name: policy", "name: lost", "configuration: policy", "configuration: lost").Replace(documents))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clitest.Execute(t, configcli.NewStore(), nil, "backup", file, "--ready-file", ready).Fails(t, "is there: name another file, or say --force")
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a backup that was refused has changed the file: %v", err)
	}
	clitest.Execute(t, configcli.NewStore(), nil, "restore", "--data-dir", dir, file).Fails(t, "another process uses the data directory", "stop it first")
	stop()
	clitest.Execute(t, configcli.NewStore(), nil, "restore", "--data-dir", dir, file).Fails(t, "holds a store already", "name another --data-dir")

	other := t.TempDir()
	r := clitest.Execute(t, configcli.NewStore(), nil, "restore", "--data-dir", other, file)
	if r.Code != 0 || !strings.Contains(r.Out, "with 2 objects") {
		t.Fatalf("restored: %s%s", r.Out, r.Notes)
	}
	ready, _ = storeIn(t, other)
	r = clitest.Execute(t, configcli.NewGet(), nil, "--ready-file", ready)
	if r.Code != 0 || !strings.Contains(r.Out, "HookRoute/policy") || strings.Contains(r.Out, "lost") {
		t.Errorf("there is %s%s", r.Out, r.Notes)
	}
	if r := clitest.Execute(t, configcli.NewGet(), nil, "changes", "--ready-file", ready); !strings.Contains(r.Out, "store restore by") {
		t.Errorf("the changes are %s%s", r.Out, r.Notes)
	}
	apply(strings.NewReplacer("name: policy", "name: again", "configuration: policy", "configuration: again").Replace(documents))
	if r := clitest.Execute(t, configcli.NewStore(), nil, "backup", file, "--force", "--ready-file", ready); r.Code != 0 {
		t.Error(r.Notes)
	}
}

func TestStoreSaysWhatIsMissing(t *testing.T) {
	clitest.Execute(t, configcli.NewStore(), nil, "backup").Fails(t, "name one file to write")
	clitest.Execute(t, configcli.NewStore(), nil, "restore", "file").Fails(t, "--data-dir is missing")
	clitest.Execute(t, configcli.NewStore(), nil, "restore", "--data-dir", t.TempDir()).Fails(t, "say which file")
	clitest.Execute(t, configcli.NewStore(), nil, "restore", "--data-dir", t.TempDir(), clitest.Write(t, "hooks.yaml", "kind: Role\n")).Fails(t, "no whole backup")
}
