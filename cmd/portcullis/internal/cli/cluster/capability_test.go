package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func capabilityNew(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, NewCommand(), nil, append([]string{"capability", "new"}, args...)...)
}

func TestCapabilityNewPrintsLinesThatTheMeshReads(t *testing.T) {
	r := capabilityNew(t, "prod-1", "--expires", "90d")
	if r.Code != 0 || r.Notes != "" {
		t.Fatalf("exit code %d: %s", r.Code, r.Notes)
	}
	secret, err := readCapability(clitest.Write(t, "capability", r.Out))
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(r.Out, "capabilities:\n")
	document := "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod-1}\nspec:\n  capabilities:\n" +
		strings.ReplaceAll("  "+strings.TrimSuffix(lines, "\n"), "\n", "\n  ")
	objects, problems := configtest.Decode("c.yaml", []byte(document))
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if c := objects[0].Cluster.Spec.Capabilities[0]; c.Sum() != secret.Sum() || time.Until(c.Expires()) < 89*24*time.Hour {
		t.Errorf("the lines are of another capability: %+v", c)
	}
}

func TestCapabilityNewPrintsJSON(t *testing.T) {
	r := capabilityNew(t, "prod-1", "--name", "first", "-o", "json")
	var got map[string]string
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	secret, err := identity.ParseCapability(got["capability"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"cluster": "prod-1", "name": "first", "capability": secret.Reveal(), "sha256": fmt.Sprintf("%x", secret.Sum()),
	}, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

func TestCapabilityNewRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"name one cluster":   {},
		"cluster \"Prod\"":   {"Prod"},
		"--name":             {"prod-1", "--name", "A"},
		"as in 90d":          {"prod-1", "--expires", "soon"},
		"at least a second":  {"prod-1", "--expires", "0d"},
		"days, as in":        {"prod-1", "--expires", "-1h"},
		"12h, of at least a": {"prod-1", "--expires", "65536d"},
	} {
		capabilityNew(t, args...).Fails(t, want)
	}
}

// registeredWith runs register with a capability file, and the capabilities in the Cluster document.
func registeredWith(t *testing.T, file, capabilities string) clitest.Result {
	t.Helper()
	known := strings.Replace(registeredMesh, "identities: [kube-apiserver]", "capabilities: ["+capabilities+"]", 1)
	return register(t, "prod-1", "--config", configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": known}),
		"--url", "https://mesh.example.com:8443", "--capability-file", file)
}

func TestClusterRegisterShowsTheCapability(t *testing.T) {
	secret := identity.NewCapability()
	known := fmt.Sprintf("{name: first, sha256: %x, notAfter: %s}", secret.Sum(), time.Now().Add(time.Hour).Format(time.RFC3339))
	r := registeredWith(t, clitest.Write(t, "capability", secret.Reveal()+"\n"), known)
	want := regexp.MustCompile(`url: https://mesh.example.com:8443/v1/clusters/prod-1/capability/` + secret.Reveal() + `/validate/fail-closed/`)
	if r.Code != 0 || !want.MatchString(r.Out) || strings.Contains(r.Notes, secret.Reveal()) {
		t.Errorf("exit code %d: %s\n%s", r.Code, r.Out, r.Notes)
	}
}

func TestClusterRegisterRefusesACapabilityThatTheMeshWouldRefuse(t *testing.T) {
	secret, other := identity.NewCapability(), identity.NewCapability()
	file := clitest.Write(t, "capability", secret.Reveal())
	for name, tt := range map[string]struct{ file, known, want string }{
		"unknown":      {file, fmt.Sprintf("{name: a, sha256: %x}", other.Sum()), fmt.Sprintf("no capability with the sha256 %x", secret.Sum())},
		"expired":      {file, fmt.Sprintf("{name: a, sha256: %x, notAfter: 2001-01-01T00:00:00Z}", secret.Sum()), "has expired at 2001-01-01"},
		"not named":    {"", fmt.Sprintf("{name: a, sha256: %x}", secret.Sum()), "--capability-file"},
		"no file":      {filepath.Join(t.TempDir(), "none"), "", "--capability-file: there is no "},
		"empty":        {clitest.Write(t, "empty", ""), "", "has 0 capabilities"},
		"two":          {clitest.Write(t, "two", secret.Reveal()+"\n"+other.Reveal()), "", "has 2 capabilities"},
		"another text": {clitest.Write(t, "text", secret.Reveal()+"x"), "", "is not a capability"},
	} {
		t.Run(name, func(t *testing.T) {
			r := registeredWith(t, tt.file, tt.known)
			r.Fails(t, tt.want)
			if strings.Contains(r.Notes, secret.Reveal()) || r.Out != "" {
				t.Errorf("a capability was printed: %s%s", r.Out, r.Notes)
			}
		})
	}
}

func TestTheFileOfACapabilityIsBounded(t *testing.T) {
	secret := identity.NewCapability().Reveal()
	for padding, want := range map[int]bool{maxCapabilityFile - len(secret): true, maxCapabilityFile - len(secret) + 1: false} {
		file := filepath.Join(t.TempDir(), "capability")
		if err := os.WriteFile(file, []byte(strings.Repeat("\n", padding)+secret), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readCapability(file); (err == nil) != want {
			t.Errorf("behind %d bytes: %v", padding, err)
		}
	}
}

// TestClusterRegisterKeepsTheCapabilityThatTheMeshMade: the command has no key, and no other capability would be accepted for long.
func TestClusterRegisterKeepsTheCapabilityThatTheMeshMade(t *testing.T) {
	made := identity.NewCapability() // looks like any other
	const rotated = "rotateCapability: 720h"
	with := func(spec string) string {
		known := strings.Replace(registeredMesh, "identities: [kube-apiserver]", spec, 1)
		return configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": known})
	}
	kubeconfig := (&apiServerOfTest{}).kubeconfig(t)
	run := func(dir string, args ...string) clitest.Result {
		return register(t, append([]string{"prod-1", "--config", dir, "--url", "https://mesh", "--kubeconfig", kubeconfig}, args...)...)
	}
	run(with(rotated), "--apply").Fails(t, "the mesh makes the capability of the entries of prod-1 (spec.rotateCapability), and there is none in the cluster yet")
	first := run(with(fmt.Sprintf("capabilities: [{name: a, sha256: %x}]", made.Sum())), "--apply", "--capability-file", clitest.Write(t, "made", made.Reveal()))
	if first.Code != 0 {
		t.Fatalf("exit code %d: %s", first.Code, first.Notes)
	}
	for _, does := range []string{"--print", "--apply", "--diff"} {
		r := run(with(rotated), does)
		if r.Code != 0 || strings.Contains(r.Out, "/capability/"+made.Reveal()+"/validate/") != (does == "--print") {
			t.Errorf("%s: exit code %d: %s\n%s", does, r.Code, r.Out, r.Notes)
		}
		if !strings.Contains(r.Notes, "the one in the cluster is kept") || strings.Contains(r.Notes, made.Reveal()) {
			t.Errorf("%s: %s", does, r.Notes)
		}
	}
	if r := run(with("identities: [kube-apiserver], "+rotated), "--name=another", "--print"); r.Code != 0 || strings.Contains(r.Out, "/capability/") {
		t.Errorf("a cluster with certificates and no entries: exit code %d: %s\n%s", r.Code, r.Out, r.Notes)
	}
	kubeconfig = clitest.Write(t, "kubeconfig", "")
	run(with(rotated), "--print").Fails(t, "this command keeps the one in the cluster, which cannot be read", "--kubeconfig")
}

func TestCapabilityKeyPrintsALineThatDispatchersRead(t *testing.T) {
	key := func() string {
		r := clitest.Execute(t, NewCommand(), nil, "capability", "key")
		if r.Code != 0 || r.Notes != "" {
			t.Fatalf("exit code %d: %s", r.Code, r.Notes)
		}
		return r.Out
	}
	keys, err := identity.ParseCapabilityKeys([]byte(key() + key()))
	if err != nil || len(keys.Names()) != 2 {
		t.Errorf("%v: %v", keys.Names(), err)
	}
}
