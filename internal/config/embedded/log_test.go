package embedded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestAStartOnAnEmptyDirectoryLogsNoWarning(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// A look at the storage version reads the new database as the monitors do, and logs until the first commit.
	for deadline := time.Now().Add(time.Minute); s.etcd.Server.StorageVersion() == nil || s.etcd.Server.ClusterVersion() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("etcd has not set its versions within a minute")
		}
	}
	log, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, "took too long") { // 100 ms, which a busy machine takes
			t.Errorf("the log has %s", line)
		}
	}
}

func TestErrorsOfANewDatabaseAreDroppedAndOthersAreNot(t *testing.T) {
	var out strings.Builder
	log := zapTo(slog.New(slog.NewTextHandler(&out, nil)), zap.WarnLevel)
	log.Warn("Failed to detect schema version", zap.Error(errors.New("cannot detect it: missing term information")))
	if out.Len() > 0 {
		t.Errorf("the log has %q", out.String())
	}
	log.Error("failed to update storage version", zap.Error(errors.New("the disk is full")))
	if !strings.Contains(out.String(), "the disk is full") {
		t.Errorf("the log has %q", out.String())
	}
}
