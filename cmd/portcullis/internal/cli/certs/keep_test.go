package certs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

// keepIn runs `certs keep` on a directory, with a server and a client.
func keepIn(t *testing.T, dir string, more ...string) clitest.Result {
	t.Helper()
	args := []string{"keep", "--dir", dir, "--server", "dispatcher=mesh.example.com,10.0.0.7", "--client", "host=spiffe://mesh/host"}
	return clitest.Execute(t, NewCommand(), nil, append(args, more...)...)
}

func TestCertsKeepMakesWhatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	r := keepIn(t, dir)
	if want := "portcullis-ca: made an authority\ndispatcher: issued a certificate\nhost: issued a certificate\n"; r.Code != 0 || r.Out != want {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"dispatcher", "host"} {
		if _, err := certs.ReadPair(filepath.Join(dir, name, "tls.crt"), filepath.Join(dir, name, "tls.key")); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(dir, name, "tls.key")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, error %v", info.Mode(), err)
		}
	}
	if r := keepIn(t, dir); r.Code != 0 || r.Out != "nothing to do\n" {
		t.Errorf("%+v", r)
	}
	shown := clitest.Execute(t, NewCommand(), nil, "show", filepath.Join(dir, "dispatcher", "tls.crt"))
	if !strings.Contains(shown.Out, "mesh.example.com,10.0.0.7") {
		t.Errorf("%+v", shown)
	}
}

func TestCertsKeepReplacesTheAuthorityOnRequest(t *testing.T) {
	dir := t.TempDir()
	keepIn(t, dir)
	rotate := filepath.Join(dir, DefaultAuthoritySecret, keep.RotateKey)
	if err := os.WriteFile(rotate, []byte("now"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := keepIn(t, dir); r.Code != 0 || !strings.Contains(r.Out, "bring the bundle into the entries") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(rotate); !os.IsNotExist(err) {
		t.Errorf("the request is still there: %v", err)
	}
	for _, step := range []string{"the new authority issues from now on", "the old authority is no longer trusted"} {
		passOverlap(t, dir)
		if r := keepIn(t, dir); r.Code != 0 || !strings.Contains(r.Out, "portcullis-ca: "+step) {
			t.Errorf("%+v", r)
		}
	}
	if r := keepIn(t, dir); r.Code != 0 || r.Out != "nothing to do\n" {
		t.Errorf("%+v", r)
	}
}

// passOverlap has the overlap be over.
func passOverlap(t *testing.T, dir string) {
	t.Helper()
	long := time.Now().Add(-2 * keep.DefaultOverlap).UTC().Format(time.RFC3339)
	if err := os.WriteFile(filepath.Join(dir, DefaultAuthoritySecret, "settled"), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertsKeepSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	locked, err := keep.OpenDir(filepath.Join(dir, "locked"))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	keepIn(t, filepath.Join(dir, "damaged"))
	if err := os.WriteFile(filepath.Join(dir, "damaged", DefaultAuthoritySecret, "tls.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"a server without names":          {[]string{"--server", "dispatcher"}, "want SECRET=NAME"},
		"a client without an identity":    {[]string{"--client", "host"}, "want SECRET=IDENTITY"},
		"names of Secrets":                {[]string{"--client", "../host=a"}, "no name of a Secret"},
		"a name of the authority":         {[]string{"--authority", "a/b"}, "no name of a Secret"},
		"a Secret that stands twice":      {[]string{"--client", "dispatcher=a"}, "named twice"},
		"a directory is no namespace":     {[]string{"--namespace", "x"}, "leave out --namespace"},
		"a certificate that is too short": {[]string{"--ttl", "1m"}, "too short"},
		"an overlap that is too short":    {[]string{"--overlap", "9m"}, "want 10m0s at least"},
		"an overlap that is too long":     {[]string{"--overlap", "87600h"}, "at most"},
		"another run":                     {[]string{"--dir", filepath.Join(dir, "locked")}, "in use by another run"},
		"an authority that is damaged":    {[]string{"--dir", filepath.Join(dir, "damaged")}, "restore the authority"},
		"a kubeconfig that is not there":  {[]string{"--dir", "", "--kubeconfig", "/nowhere"}, "--kubeconfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			keepIn(t, filepath.Join(dir, "certs"), tt.args...).Fails(t, tt.want)
		})
	}
}
