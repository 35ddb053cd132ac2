package config

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode reads documents as a program does, with the validation of Kubernetes.
func decode(file string, data []byte) ([]Object, Problems) { return newDecoder().Decode(file, data) }

func newDecoder() *Decoder { return NewDecoder(apiserver.Validator{}) }

// corpus is the path of the corpus of real webhook configurations.
func corpus(t testing.TB) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "corpus", "webhookconfigurations")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the corpus of real documents is not here")
	}
	return path
}
