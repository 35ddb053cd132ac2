package keep_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

func openDir(t *testing.T, path string) *keep.Dir {
	t.Helper()
	dir, err := keep.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestADirectoryHoldsWhatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certs")
	dir := openDir(t, path)
	none, err := dir.Read(t.Context(), "host")
	if err != nil || none.Files != nil || none.Version != "" {
		t.Fatalf("%+v, error %v", none, err)
	}
	write := func(s keep.Secret, files map[string][]byte) keep.Secret {
		t.Helper()
		s.Files = files
		if err := dir.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		read, err := dir.Read(t.Context(), "host")
		if err != nil || read.Version == s.Version {
			t.Fatalf("%+v, error %v", read, err)
		}
		if diff := cmp.Diff(files, read.Files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		return read
	}
	first := write(none, map[string][]byte{"tls.crt": []byte("a"), "tls.key": []byte("b")})
	write(first, map[string][]byte{"tls.crt": []byte("c"), "ca.crt": []byte("d")})
	for name, stale := range map[string]keep.Secret{"changed": first, "made": none} {
		if err := dir.Write(t.Context(), stale); !errors.Is(err, keep.ErrConflict) {
			t.Errorf("%s: error %v, want a conflict", name, err)
		}
	}
}

func TestTheKeyInADirectoryIsItsOwnersAlone(t *testing.T) {
	path := t.TempDir()
	if err := openDir(t, path).Write(t.Context(), keep.Secret{Name: "ca", Files: map[string][]byte{"next.key": nil, "next.crt": nil}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"next.key": 0o600, "next.crt": 0o644} {
		if info, err := os.Stat(filepath.Join(path, "ca", name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, error %v", name, info, err)
		}
	}
}

// TestFilesThatAreNoPartOfASecretStay: temporary files of a crash, and folders as in a volume of Kubernetes.
func TestFilesThatAreNoPartOfASecretStay(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	if err := errors.Join(os.MkdirAll(filepath.Join(path, "ca", "sub"), 0o700), os.WriteFile(filepath.Join(path, "ca", ".tls.crt.1"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	secret, err := dir.Read(t.Context(), "ca")
	if err != nil || len(secret.Files) != 0 {
		t.Errorf("%+v, error %v", secret, err)
	}
	if err := dir.Write(t.Context(), secret); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(path, "ca", ".tls.crt.1")); err != nil {
		t.Error(err)
	}
}

func TestOneRunAtATimeUsesADirectory(t *testing.T) {
	path := t.TempDir()
	openDir(t, path)
	if _, err := keep.OpenDir(path); err == nil {
		t.Error("a second one opens it")
	}
}
