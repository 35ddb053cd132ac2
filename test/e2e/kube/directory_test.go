package kube

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestLeftoversOfDeadTestBinariesAreRemovedAndOthersKept(t *testing.T) {
	parent := t.TempDir()
	dead := filepath.Join(parent, strconv.Itoa(deadProcess(t))+"-1")
	living := filepath.Join(parent, strconv.Itoa(os.Getpid())+"-1")
	foreign := filepath.Join(parent, "notes")
	for _, dir := range []string{dead, living, foreign} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	made, err := newDirectory(parent)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a dead process: %v, want it removed", err)
	}
	for _, dir := range []string{living, foreign, string(made)} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%v, want it kept", err)
		}
	}
}

// deadProcess is an id that no process has.
func deadProcess(t *testing.T) int {
	t.Helper()
	command := exec.Command("/bin/true")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	return command.Process.Pid
}
