package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCaseFilesAreBounded(t *testing.T) {
	write := func(dir, name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	dir := t.TempDir()
	for want, text := range map[string]string{
		fmt.Sprintf("larger than %d bytes", MaxFileBytes): strings.Repeat("#", MaxFileBytes+1),
		fmt.Sprintf("there are %d cases", MaxCases+1):     "cases:\n" + strings.Repeat("- {}\n", MaxCases+1),
		fmt.Sprintf("hosts: there are %d", MaxHosts+1):    "hosts:\n" + strings.Repeat("- {command: [a]}\n", MaxHosts+1) + "cases: [{}]\n",
	} {
		if _, err := Read(write(dir, "cases.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %.200v, want %q", err, want)
		}
	}
	for n := range MaxFiles + 1 {
		write(dir, fmt.Sprintf("c%d.cases.yaml", n), "")
	}
	if files, err := Find(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d case files", MaxFiles)) {
		t.Errorf("%d files, %v", len(files), err)
	}
}
