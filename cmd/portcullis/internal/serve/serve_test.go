package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	certscli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/certs"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

func TestFilesOfTheHostsListenerAreFilledUp(t *testing.T) {
	bridge := tlsFiles{cert: "tls.crt", key: "tls.key", ca: "ca.crt"}
	for name, tc := range map[string]struct{ hosts, want tlsFiles }{
		"nothing given: the bridge's":                    {tlsFiles{}, bridge},
		"everything given: nothing of the bridge's":      {tlsFiles{"h.crt", "h.key", "h.ca"}, tlsFiles{"h.crt", "h.key", "h.ca"}},
		"other authorities: the bridge's certificate":    {tlsFiles{ca: "h.ca"}, tlsFiles{"tls.crt", "tls.key", "h.ca"}},
		"another certificate: the bridge's authorities":  {tlsFiles{cert: "h.crt", key: "h.key"}, tlsFiles{"h.crt", "h.key", "ca.crt"}},
		"a certificate without its key is not completed": {tlsFiles{cert: "h.crt"}, tlsFiles{"h.crt", "", "ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.hosts.orElse(bridge); got != tc.want {
				t.Errorf("files = %+v, want %+v", got, tc.want)
			}
		})
	}
}

// newAuthority makes an authority in a new directory.
func newAuthority(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if r := clitest.Execute(t, certscli.NewCommand(), nil, "authority", "--dir", dir); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	return dir
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	dir := newAuthority(t)
	for _, args := range [][]string{{"client", "--identity", "a"}, {"server", "--dns", "localhost"}} {
		if r := clitest.Execute(t, certscli.NewCommand(), nil, append([]string{"issue", "--dir", dir}, args...)...); r.Code != 0 {
			t.Fatal(r.Notes)
		}
	}
	files := func(name string) []string {
		cert, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
		return []string{"--config", dir, "--tls-cert", cert, "--tls-key", key}
	}
	ca := filepath.Join(dir, "ca.crt")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing given: everything is missing":    {nil, "serve needs --config, --data-dir, --etcd, --config-namespace or --config-custom-resources, --tls-cert, --tls-key, --tls-ca;"},
		"one flag is missing":                     {files("server"), "serve needs --tls-ca;"},
		"the certificate of a client":             {append(files("client"), "--tls-ca", ca), "is for clients only"},
		"the key of another certificate":          {append(files("server"), "--tls-ca", ca, "--tls-key", filepath.Join(dir, "client.key")), "does not match"},
		"a configuration that is not there":       {append(files("server"), "--tls-ca", ca, "--config", filepath.Join(dir, "conf.d")), "conf.d: name files"},
		"protocols that API servers do not speak": {append(files("server"), "--tls-ca", ca, "--alpn-protocols", "h2"), "--alpn-protocols: http/1.1 is missing"},
		"protocols that do not exist":             {append(files("server"), "--tls-ca", ca, "--alpn-protocols", "http/1.1,h3"), `--alpn-protocols: "h3" is not a protocol`},
		"a ready file that cannot be removed":     {append(files("server"), "--tls-ca", ca, "--ready-file", dir), "ready file"},
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Execute(t, NewCommand(), nil, tc.args...).Fails(t, tc.want)
		})
	}
}

func TestTheReadyFileOfAnEarlierProcessIsRemoved(t *testing.T) {
	file := clitest.Write(t, "ready.json", "{}")
	for range 2 { // the second time it is gone already
		if err := removeReadyFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

func TestTheReadyFileGoesWithItsProcess(t *testing.T) {
	first, second := readyFile{name: filepath.Join(t.TempDir(), "ready.json")}, readyFile{}
	if err := first.write(readyInfo{Hosts: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	second.name = first.name
	if err := second.write(readyInfo{Hosts: "127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	first.remove()
	if _, err := os.Stat(second.name); err != nil {
		t.Errorf("a process has removed the file of another one: %v", err)
	}
	second.remove()
	if _, err := os.Stat(second.name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file has outlived its process: %v", err)
	}
	new(readyFile).remove() // no file was asked for
}
