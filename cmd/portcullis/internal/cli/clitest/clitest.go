// Package clitest runs commands in tests. It is not linked into the program.
package clitest

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

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files") //nolint:gochecknoglobals // a flag of test binaries

// Result is how a command ended.
type Result struct {
	Out, Notes string // standard output and error
	Code       int
}

// Execute runs a command as the process would. Without $XDG_CONFIG_HOME it has no settings of the user.
func Execute(t *testing.T, cmd *cobra.Command, in io.Reader, args ...string) Result {
	t.Helper()
	if os.Getenv("XDG_CONFIG_HOME") == "" { // for the whole process, so that tests may run side by side
		if err := os.Setenv("XDG_CONFIG_HOME", noSettings()); err != nil { //nolint:usetesting // t.Setenv allows no parallel tests
			t.Fatal(err)
		}
	}
	var out, notes bytes.Buffer
	root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cmd)
	root.SetArgs(append([]string{cmd.Name()}, args...))
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&notes)
	code := cli.Run(t.Context(), root)
	return Result{out.String(), notes.String(), code}
}

// noSettings is a directory that does not exist.
func noSettings() string { return filepath.Join(os.TempDir(), "no-settings-of-portcullis") }

// Golden compares text with a file of testdata.
func Golden(t *testing.T, name, got string) {
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

// Write makes a file in a new directory.
func Write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Fails checks that a command failed with exit code 2 and a message with the wanted texts.
func (r Result) Fails(t *testing.T, want ...string) {
	t.Helper()
	r.Ends(t, cli.ExitError, want...)
}

// Ends is fails, with another exit code.
func (r Result) Ends(t *testing.T, code int, want ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.Code, code, r.Out, r.Notes)
	}
	for _, w := range want {
		if !strings.Contains(r.Notes, w) {
			t.Errorf("no %q in: %s", w, r.Notes)
		}
	}
}
