package config

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// corpus is the path of the corpus of real webhook configurations.
func corpus(t testing.TB) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "corpus", "webhookconfigurations")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the corpus of real documents is not here")
	}
	return path
}
