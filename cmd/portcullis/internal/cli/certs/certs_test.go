package certs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// authority makes one in a new directory.
func authority(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	if r := clitest.Execute(t, NewCommand(), nil, "authority", "--dir", dir, "--name", "test authority"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	return dir
}

func TestCertsIssue(t *testing.T) {
	tests := map[string]struct {
		args []string
		file string
		want certificate
	}{
		"a server has names and addresses": {
			args: []string{"server", "--dns", "mesh.example.com", "--dns", "localhost", "--ip", "127.0.0.1"},
			file: "server.crt",
			want: certificate{Uses: []string{"server"}, Names: []string{"mesh.example.com", "localhost", "127.0.0.1"}},
		},
		"a host is known by a URI": {
			args: []string{"host", "--identity", "spiffe://mesh/imagepolicy", "--name", "imagepolicy"},
			file: "imagepolicy.crt",
			want: certificate{Identity: "spiffe://mesh/imagepolicy", Uses: []string{"client"}},
		},
		"a client is known by a name": {
			args: []string{"client", "--identity", "kube-apiserver", "--ttl", "24h"},
			file: "client.crt",
			want: certificate{Identity: "kube-apiserver", Uses: []string{"client"}},
		},
	}
	dir := authority(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"issue", "--dir", dir}, tt.args...)
			if r := clitest.Execute(t, NewCommand(), nil, args...); r.Code != 0 || !strings.Contains(r.Out, tt.file) {
				t.Fatalf("%+v", r)
			}
			r := clitest.Execute(t, NewCommand(), nil, "show", "-o", "json", filepath.Join(dir, tt.file))
			var got []certificate
			if err := json.Unmarshal([]byte(r.Out), &got); err != nil || len(got) != 1 {
				t.Fatalf("%v: %+v", err, r)
			}
			tt.want.File, tt.want.Issuer, tt.want.State = filepath.Join(dir, tt.file), "test authority", "valid"
			if diff := cmp.Diff(tt.want, got[0], cmpopts.IgnoreFields(certificate{}, "From", "Until"), cmpopts.IgnoreUnexported(certificate{})); diff != "" {
				t.Errorf("certificate (-want +got):\n%s", diff)
			}
			checkFiles(t, dir, strings.TrimSuffix(tt.file, ".crt"))
		})
	}
}

// checkFiles sees that a certificate fits its key and its authority, and that the key is its owner's alone.
func checkFiles(t *testing.T, dir, name string) {
	t.Helper()
	cert, key := pairFiles(dir, name)
	if _, err := certs.ReadPair(cert, key); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v", key, info.Mode())
	}
}

func TestCertsIssueReplacesACertificateWhenAskedAgain(t *testing.T) {
	dir := authority(t)
	read := func() string {
		if r := clitest.Execute(t, NewCommand(), nil, "issue", "client", "--dir", dir, "--identity", "a"); r.Code != 0 {
			t.Fatal(r.Notes)
		}
		data, err := os.ReadFile(filepath.Join(dir, "client.crt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first := read()
	if read() == first {
		t.Error("the certificate is the same")
	}
}

func TestCertsIssueKeepsTheKeyOfAnotherIdentity(t *testing.T) {
	dir := authority(t)
	issue := func(args ...string) clitest.Result {
		return clitest.Execute(t, NewCommand(), nil, append([]string{"issue", "host", "--dir", dir}, args...)...)
	}
	if r := issue("--identity", "spiffe://mesh/a"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	issue("--identity", "spiffe://mesh/b").Fails(t, "spiffe://mesh/a", "--name")
	checkFiles(t, dir, "host")
	if r := issue("--identity", "spiffe://mesh/b", "--name", "b"); r.Code != 0 {
		t.Error(r.Notes)
	}
}

func TestCertsSaysWhatIsWrong(t *testing.T) {
	dir := authority(t)
	tests := map[string]struct {
		args []string
		want string
	}{
		"an authority is never replaced":         {[]string{"authority", "--dir", dir}, "is there already"},
		"an authority has to hold for a while":   {[]string{"authority", "--dir", t.TempDir(), "--ttl", "-1h"}, "--ttl"},
		"a role is needed":                       {[]string{"issue", "--dir", dir}, "server, host or client"},
		"a role that is not known":               {[]string{"issue", "peer", "--dir", dir}, "server, host or client"},
		"a server needs a name":                  {[]string{"issue", "server", "--dir", dir, "--identity", "x"}, "give it --dns or --ip"},
		"a host needs an identity":               {[]string{"issue", "host", "--dir", dir}, "give it --identity"},
		"the authority's files are not a leaf's": {[]string{"issue", "client", "--dir", dir, "--identity", "a", "--name", "ca"}, "--name"},
		"files stay in their directory":          {[]string{"issue", "client", "--dir", dir, "--identity", "a", "--name", "../a"}, "--name"},
		"a certificate has to hold for a while":  {[]string{"issue", "client", "--dir", dir, "--identity", "a", "--ttl", "0s"}, "--ttl"},
		"an authority is needed":                 {[]string{"issue", "client", "--dir", t.TempDir(), "--identity", "a"}, "`portcullis certs authority --dir"},
		"a leaf is no authority":                 {[]string{"issue", "client", "--dir", leafAsAuthority(t), "--identity", "a"}, "not one of an authority"},
		"a key is no certificate":                {[]string{"show", filepath.Join(dir, "ca.key")}, "name the .crt file"},
		"a file that is not there":               {[]string{"show", "/nowhere.crt"}, "/nowhere.crt"},
		"something to show is needed":            {[]string{"show"}, "name the files to show"},
		"a certificate that is not one":          {[]string{"show", clitest.Write(t, "x.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, "x.crt"},
		"a form of output that there is not":     {[]string{"show", "-o", "yaml", filepath.Join(dir, "ca.crt")}, "use json"},
		"a directory that cannot be written to":  {[]string{"issue", "client", "--dir", dir, "--identity", "a", "--out", "/nowhere"}, "/nowhere"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clitest.Execute(t, NewCommand(), nil, tt.args...).Fails(t, tt.want)
		})
	}
}

// leafAsAuthority is a directory in which a client's certificate has the name of an authority's.
func leafAsAuthority(t *testing.T) string {
	t.Helper()
	dir := authority(t)
	if r := clitest.Execute(t, NewCommand(), nil, "issue", "client", "--dir", dir, "--identity", "a"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	for _, suffix := range []string{certSuffix, keySuffix} {
		if err := os.Rename(filepath.Join(dir, "client"+suffix), filepath.Join(dir, "ca"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCertsShowPrintsATableOfAllCertificates(t *testing.T) {
	dir := authority(t)
	clitest.Execute(t, NewCommand(), nil, "issue", "host", "--dir", dir, "--identity", "spiffe://mesh/h", "--ttl", "240h30m")
	r := clitest.Execute(t, NewCommand(), nil, "show", filepath.Join(dir, "host.crt"), filepath.Join(dir, "ca.crt"))
	lines := strings.Split(r.Out, "\n")
	if r.Code != 0 || len(lines) != 7 || !strings.HasPrefix(lines[0], "FILE") {
		t.Fatalf("%+v", r)
	}
	for i, want := range map[int]string{1: "spiffe://mesh/h", 2: "authority", 5: "ca.crt", 6: ""} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("no %q in %q", want, lines[i])
		}
	}
	if _, fingerprint, _ := strings.Cut(lines[5], "sha256:"); identity.CheckAuthority("sha256:"+fingerprint) != nil {
		t.Errorf("fingerprint: %q", lines[5])
	}
	if !strings.HasSuffix(lines[1], "(in 10 days)") {
		t.Errorf("expiry: %q", lines[1])
	}
}

func TestExpiryOfACertificate(t *testing.T) {
	dir := authority(t)
	file := filepath.Join(dir, "ca.crt")
	shown, err := readCertificates(file, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	from, until := shown[0].From, shown[0].Until
	tests := map[string]struct {
		now         time.Time
		state, left string
	}{
		"before it begins":       {from.Add(-time.Second), "not yet valid", "(not yet valid)"},
		"in its time":            {until.Add(-72 * time.Hour), "valid", "(in 3 days)"},
		"shortly before its end": {until.Add(-90 * time.Minute), "valid", "(in 1h30m0s)"},
		"after it":               {until.Add(time.Second), "expired", "(expired)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			shown, err := readCertificates(file, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := shown[0]; got.State != tt.state || !strings.HasSuffix(got.expiry(), tt.left) {
				t.Errorf("%s, %s; want %s, %s", got.State, got.expiry(), tt.state, tt.left)
			}
		})
	}
}
