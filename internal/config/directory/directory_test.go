package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func directory(t *testing.T, paths ...string) *Source {
	t.Helper()
	d, err := New(Options{Paths: paths, Decoder: configtest.NewDecoder()})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func list(t *testing.T, d *Source) config.Listing {
	t.Helper()
	l, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// found are the objects as file:name.
func found(l config.Listing) []string {
	all := []string{}
	for _, o := range l.Objects {
		all = append(all, filepath.Base(o.File)+":"+o.Name)
	}
	return all
}

func TestADirectoryIsItsManifests(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, name := range []string{"b.yml", "a.yaml", "c.json", ".hidden.yaml", "notes.txt", "a.yaml~", "sub/d.yaml", "dir.yaml/e.yaml"} {
		write(t, filepath.Join(dir, name), clusterDoc("x-"+strings.TrimLeft(name[:1], "."), "1"))
	}
	write(t, filepath.Join(other, "file.conf"), clusterDoc("single", "1"))
	write(t, filepath.Join(other, "not-named.yaml"), clusterDoc("not-named", "1"))
	l := list(t, directory(t, dir, filepath.Join(other, "file.conf"), dir))
	want := []string{"a.yaml:x-a", "b.yml:x-b", "c.json:x-c", "file.conf:single"}
	if filepath.Dir(l.Objects[0].File) != dir {
		want = append(want[3:], want[:3]...)
	}
	if diff := cmp.Diff(want, found(l)); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if len(l.Problems) > 0 {
		t.Errorf("problems %q", lines(l.Problems))
	}
}

func TestAFileOfOpenPolicyAgentIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), clusterDoc("a", "1"))
	write(t, filepath.Join(dir, "policy.rego"), "package kubernetes.admission\n")
	l := list(t, directory(t, dir))
	if len(l.Objects) != 1 || len(l.Problems) != 1 || !strings.Contains(lines(l.Problems)[0], "policy.rego: a file .rego belongs to Open Policy Agent") {
		t.Errorf("%d objects, problems %q", len(l.Objects), lines(l.Problems))
	}
}

func TestTheRevisionOfAListingFollowsTheFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), clusterDoc("a", "1"))
	d := directory(t, dir)
	first := list(t, d)
	if again := list(t, d); again.Revision != first.Revision {
		t.Error("listing alone changes the revision")
	}
	write(t, filepath.Join(dir, "a.yaml"), clusterDoc("a", "2"))
	second := list(t, d)
	if second.Revision == first.Revision || second.Objects[0].Cluster.Metadata.Labels["version"] != "2" {
		t.Error("a change is not seen")
	}
	write(t, filepath.Join(dir, "a.yaml"), clusterDoc("a", "1"))
	if third := list(t, d); third.Revision != first.Revision {
		t.Error("the same files have another revision")
	}
}

func TestWhatCannotBeReadFailsTheListing(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	write(t, filepath.Join(sub, "a.yaml"), clusterDoc("a", "1"))
	for _, tc := range []struct {
		name   string
		spoil  func() error
		repair func() error
		path   string
	}{
		{"a directory that vanished", func() error { return os.Rename(sub, sub+"2") }, func() error { return os.Rename(sub+"2", sub) }, sub},
		{"a file that vanished", func() error { return nil }, func() error { return nil }, filepath.Join(sub, "b.yaml")},
		{"a link to nothing", func() error { return os.Symlink("nowhere", filepath.Join(sub, "l.yaml")) }, func() error { return os.Remove(filepath.Join(sub, "l.yaml")) }, sub},
		{"a pipe", func() error { return syscall.Mkfifo(filepath.Join(sub, "p.yaml"), 0o600) }, func() error { return os.Remove(filepath.Join(sub, "p.yaml")) }, sub},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.spoil(); err != nil {
				t.Fatal(err)
			}
			l, err := directory(t, tc.path).List(t.Context())
			l = l.Decoded()
			if err == nil || !strings.Contains(err.Error(), sub) {
				t.Errorf("got %d objects, error %v", len(l.Objects), err)
			}
			if err := tc.repair(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if l := list(t, directory(t, sub)); len(l.Objects) != 1 {
		t.Errorf("after the repair: %d objects", len(l.Objects))
	}
}

func TestAnUnreadableFileFailsTheListing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), clusterDoc("a", "1"))
	if err := os.Chmod(filepath.Join(dir, "a.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "a.yaml")); err == nil {
		t.Skip("this user may read everything")
	}
	if _, err := directory(t, dir).List(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestAnEmptyDirectoryIsAnEmptyConfiguration(t *testing.T) {
	if l := list(t, directory(t, t.TempDir())); len(l.Objects)+len(l.Problems) > 0 {
		t.Errorf("%+v", l)
	}
}

func TestTheNumberOfFilesIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxFiles {
		write(t, filepath.Join(dir, fmt.Sprintf("%04d.yaml", i)), "#")
	}
	d := directory(t, dir)
	if l := list(t, d); len(l.Problems) > 0 {
		t.Errorf("problems %q", lines(l.Problems))
	}
	write(t, filepath.Join(dir, "last.yaml"), "#")
	if got := strings.Join(lines(list(t, d).Problems), ""); got != "the paths hold more than 5000 files" {
		t.Errorf("problems %q", got)
	}
}

func TestTheNumberOfObjectsIsBounded(t *testing.T) {
	dir := t.TempDir()
	var docs strings.Builder
	for i := range config.MaxDocuments {
		fmt.Fprintf(&docs, `{"apiVersion":"portcullis.dev/v1","kind":"Cluster","metadata":{"name":"c%d"},"spec":{}}`+"\n", i)
	}
	for i := range MaxObjects / config.MaxDocuments {
		write(t, filepath.Join(dir, fmt.Sprint(i, ".json")), docs.String())
	}
	d := directory(t, dir)
	if l := list(t, d); len(l.Objects) != MaxObjects || len(l.Problems) > 0 {
		t.Errorf("%d objects, problems %q", len(l.Objects), lines(l.Problems))
	}
	write(t, filepath.Join(dir, "last.yaml"), clusterDoc("last", "1"))
	l := list(t, d)
	if len(l.Objects) != 0 || len(l.Problems) != 1 || l.Problems[0].Code != config.CodeLimit || l.Problems[0].File != "" {
		t.Errorf("%d objects, problems %q", len(l.Objects), lines(l.Problems))
	}
}

// mount is a ConfigMap mount as the kubelet makes it: links through ..data.
type mount struct {
	t       *testing.T
	dir     string
	version int
}

func (m *mount) swap(files map[string]string) {
	m.t.Helper()
	m.version++
	name := fmt.Sprintf("..version_%d", m.version)
	for file, data := range files {
		write(m.t, filepath.Join(m.dir, name, file), data)
		link := filepath.Join(m.dir, file)
		if err := os.Symlink(filepath.Join("..data", file), link); err != nil && !errors.Is(err, fs.ErrExist) {
			m.t.Fatal(err)
		}
	}
	if err := os.Symlink(name, filepath.Join(m.dir, "..data_tmp")); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")); err != nil {
		m.t.Fatal(err)
	}
	if m.version > 1 {
		if err := os.RemoveAll(filepath.Join(m.dir, fmt.Sprintf("..version_%d", m.version-1))); err != nil {
			m.t.Fatal(err)
		}
	}
}

func TestAConfigMapMountIsReadAsOneVersion(t *testing.T) {
	m := &mount{t: t, dir: t.TempDir()}
	m.swap(map[string]string{"a.yaml": clusterDoc("a", "1"), "b.yaml": clusterDoc("b", "1")})
	d := directory(t, m.dir)
	if diff := cmp.Diff([]string{"a.yaml:a", "b.yaml:b"}, found(list(t, d))); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	m.swap(map[string]string{"a.yaml": clusterDoc("a", "2")}) // the link of b.yaml is left behind, as the kubelet does for a moment
	l := list(t, d)
	if diff := cmp.Diff([]string{"a.yaml:a"}, found(l)); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if o := l.Objects[0]; o.File != filepath.Join(m.dir, "a.yaml") || o.Cluster.Metadata.Labels["version"] != "2" {
		t.Errorf("%s: %+v", o.File, o.Cluster.Metadata)
	}
}

// eventually polls a condition until it holds or a long time has passed.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

func TestWatchNoticesEveryWayToChangeAFile(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "conf")
	m := &mount{t: t, dir: filepath.Join(root, "mount")}
	m.swap(map[string]string{"a.yaml": clusterDoc("m", "1")})
	write(t, filepath.Join(dir, "a.yaml"), "")
	write(t, filepath.Join(root, "single.conf"), "")
	d := directory(t, dir, m.dir, filepath.Join(root, "single.conf"))

	events := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- d.Watch(ctx, func() {
			select {
			case events <- struct{}{}:
			default:
			}
		})
	}()
	<-events // the watch has begun
	drain := func() {
		for len(events) > 0 {
			<-events
		}
	}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"a file is written", func() error { return os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("# 2"), 0o600) }},
		{"a file is replaced", func() error {
			if err := os.WriteFile(filepath.Join(dir, "tmp"), nil, 0o600); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "a.yaml"))
		}},
		{"a file is removed", func() error { return os.Remove(filepath.Join(dir, "a.yaml")) }},
		{"a single file is written", func() error { return os.WriteFile(filepath.Join(root, "single.conf"), []byte("# 2"), 0o600) }},
		{"a mount is swapped", func() error { m.swap(map[string]string{"a.yaml": clusterDoc("m", "2")}); return nil }},
	} {
		drain()
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		eventually(t, change.name, func() bool { return len(events) > 0 })
	}
	// A directory that is replaced is watched again.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "b.yaml"), "")
	written := 0
	eventually(t, "a directory is replaced", func() bool {
		drain()
		written++
		write(t, filepath.Join(dir, "b.yaml"), fmt.Sprint("# ", written))
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // gives the kernel time to tell, in a loop that has a deadline
		return len(events) > 0
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestADirectoryInForce runs the whole road from files to snapshots, on a real file system.
func TestADirectoryInForce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	write(t, filepath.Join(dir, "hook.yaml"), goodHook)
	write(t, filepath.Join(dir, "route.yaml"), goodRoute)
	s, err := store.New(store.Options{Sources: []config.Source{directory(t, dir)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	first := mustFresh(t, s)

	write(t, filepath.Join(dir, "hook.yaml"), goodHook+"  oops: 1\n")
	eventually(t, "a bad document is reported", func() bool { return codes(s.Configuration().Problems) == "field,kept" })
	if mustFresh(t, s) != first {
		t.Error("the bad document is in force")
	}
	write(t, filepath.Join(dir, "hook.yaml"), strings.Replace(goodHook, "pods", "services", 1))
	eventually(t, "the mended document is in force", func() bool { return mustFresh(t, s) != first })

	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the vanished directory is reported", func() bool { return codes(s.Configuration().Problems) == config.CodeSource })
	if snapshot, err := s.Fresh(ctx); err != nil || len(snapshot.Hooks()) != 1 {
		t.Errorf("the vanished directory is an empty configuration: %v", err)
	}
	if err := os.Rename(dir+".gone", dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory is back", func() bool { return len(s.Configuration().Problems) == 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The content of a source without a gate is bounded before it is compiled, whatever the number of its documents.
func TestFilesWithTooManyConditionsKeepTheirLastGoodVersions(t *testing.T) {
	dir := t.TempDir()
	repeat := func(n int, x string) (all []string) {
		for range n {
			all = append(all, x)
		}
		return all
	}
	put := func(name string, conditions int) {
		write(t, filepath.Join(dir, name+".yaml"), conditional(name, repeat(conditions, "true")...))
	}
	d := directory(t, dir)
	listed := func() (names string, problems config.Problems) {
		l := list(t, d)
		for _, o := range l.Objects {
			names += o.Name
		}
		return names, l.Problems
	}
	for _, name := range []string{"b", "c"} {
		put(name, config.MaxConditions)
	}
	if names, problems := listed(); names != "bc" || len(problems) > 0 {
		t.Fatalf("listed %s, problems %q", names, lines(problems))
	}
	put("a", 1001)
	if names, problems := listed(); names != "bc" || len(problems) != 1 || problems[0].Key.Name != "a" || problems[0].Code != config.CodeLimit {
		t.Errorf("one too many: listed %s, problems %q", names, lines(problems))
	}
	put("c", config.MaxConditions-1)
	if names, problems := listed(); names != "abc" || len(problems) > 0 {
		t.Errorf("when there is room: listed %s, problems %q", names, lines(problems))
	}
}
