package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the golden files")

// ran is how a command ended.
type ran struct {
	out, notes string // standard output and error
	code       int
}

// execute runs a command as the process would.
func execute(t *testing.T, cmd *cobra.Command, in io.Reader, args ...string) ran {
	t.Helper()
	var out, notes bytes.Buffer
	root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cmd)
	root.SetArgs(append([]string{cmd.Name()}, args...))
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&notes)
	code := run(t.Context(), root)
	return ran{out.String(), notes.String(), code}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// write makes a file in a new directory.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fails checks that a command failed with exit code 2 and a message that says what is wanted.
func (r ran) fails(t *testing.T, want ...string) {
	t.Helper()
	r.ends(t, exitError, want...)
}

// ends is fails, with another exit code.
func (r ran) ends(t *testing.T, code int, want ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.notes)
	}
	for _, w := range want {
		if !strings.Contains(r.notes, w) {
			t.Errorf("no %q in: %s", w, r.notes)
		}
	}
}
