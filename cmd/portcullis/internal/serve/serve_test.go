package serve

import (
	"path/filepath"
	"testing"

	certscli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/certs"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

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
