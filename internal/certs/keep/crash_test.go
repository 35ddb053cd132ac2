package keep_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

var errCrash = errors.New("the process ends here")

// rotation replaces an authority once, and returns the writes and how many changes of files they took. The process ends
// before the change with a number, and the next one goes on; 0 is never.
func rotation(t *testing.T, dir *keep.Dir, crashAt int) (writes []string, changes int) {
	t.Helper()
	dir.Before(func(string) error {
		if changes++; changes == crashAt {
			return errCrash
		}
		return nil
	})
	config := newWorld(t).config
	config.Leaves = config.Leaves[:1]
	begin := config.Now()
	for _, age := range []int{0, 241, 249, 257} { // days
		config.Now = func() time.Time { return begin.AddDate(0, 0, age) }
		report, err := keep.Run(t.Context(), dir, config)
		writes = append(writes, report.Writes...)
		if errors.Is(err, errCrash) {
			report, err = keep.Run(t.Context(), dir, config)
			writes = append(writes, report.Writes...)
		}
		if err != nil {
			t.Fatalf("after a crash before change %d, after %d days: %v", crashAt, age, err)
		}
	}
	return writes, changes
}

// names are the files of all Secrets.
func names(t *testing.T, dir *keep.Dir) (names []string) {
	t.Helper()
	for _, secret := range []string{"ca", "server"} {
		read, err := dir.Read(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		for name := range read.Files {
			names = append(names, secret+"/"+name)
		}
	}
	slices.Sort(names)
	return names
}

// TestACrashAtAnyStepLosesNothing ends the process before each change of a file, from the first authority to the end of its replacement: the next
// pass goes on, and its result equals the result of a run without a crash.
func TestACrashAtAnyStepLosesNothing(t *testing.T) {
	quiet := openDir(t, t.TempDir())
	writes, changes := rotation(t, quiet, 0)
	if !slices.ContainsFunc(writes, func(s string) bool { return strings.HasSuffix(s, "the old authority is no longer trusted") }) {
		t.Fatalf("the authority is not replaced: %q", writes)
	}
	for crashAt := 1; crashAt <= changes; crashAt++ {
		path := t.TempDir()
		dir := openDir(t, path)
		rotation(t, dir, crashAt)
		if diff := cmp.Diff(names(t, quiet), names(t, dir)); diff != "" {
			t.Errorf("after a crash before change %d of %d (-want +got):\n%s", crashAt, changes, diff)
		}
		for _, secret := range []string{"ca", "server"} {
			if _, err := os.Stat(filepath.Join(path, secret, ".pending")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after a crash before change %d: a write of %s is pending, %v", crashAt, secret, err)
			}
		}
	}
}
