package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const (
	knownSum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	otherSum = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func clusterObject(t *testing.T, spec string) *config.Object {
	t.Helper()
	objects, problems := configtest.Decode("c.yaml", []byte("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod-1, labels: {a: b}}\nspec: "+spec))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return &objects[0]
}

func listed(sum string) string { return `{name: c-` + sum[:2] + `, sha256: ` + sum + `}` }

func TestAJoinAddsToTheDocumentWhatItLacks(t *testing.T) {
	byCapability := demands{cluster: "prod-1", capability: &kinds.Capability{Name: "c-aa", SHA256: knownSum}, access: accessNone}
	byIdentity := demands{cluster: "prod-1", identity: "kube-apiserver", access: accessNone}
	with := func(d demands, access, path string) demands { d.access, d.kubeconfig = access, path; return d }
	for name, tc := range map[string]struct {
		demands
		before string // spec; empty for no document
		after  string
	}{
		"a new document by capability": {byCapability, "", "{capabilities: [" + listed(knownSum) + "]}"},
		"a new document by identity":   {byIdentity, "", "{identities: [kube-apiserver]}"},
		"a second capability":          {byCapability, "{capabilities: [" + listed(otherSum) + "]}", "{capabilities: [" + listed(otherSum) + ", " + listed(knownSum) + "]}"},
		"a capability that is there":   {byCapability, "{capabilities: [" + listed(knownSum) + "]}", "{capabilities: [" + listed(knownSum) + "]}"},
		"a capability that is there beside an identity": {
			byCapability, "{identities: [a], capabilities: [" + listed(knownSum) + "]}", "{identities: [a], capabilities: [" + listed(knownSum) + "]}",
		},
		"an identity that is there":        {byIdentity, "{identities: [a, kube-apiserver]}", "{identities: [a, kube-apiserver]}"},
		"other fields stay":                {byIdentity, "{namespaces: {static: {default: {}}}}", "{identities: [kube-apiserver], namespaces: {static: {default: {}}}}"},
		"a kubeconfig":                     {with(byIdentity, accessKubeconfig, "/k"), "{identities: [kube-apiserver]}", "{identities: [kube-apiserver], kubeconfig: /k}"},
		"a kubeconfig that nobody demands": {byIdentity, "{identities: [kube-apiserver], kubeconfig: /k}", "{identities: [kube-apiserver], kubeconfig: /k}"},
		"a bridge":                         {with(byIdentity, accessBridge, ""), "", "{identities: [kube-apiserver], bridge: {}}"},
	} {
		t.Run(name, func(t *testing.T) {
			var before *config.Object
			if tc.before != "" {
				before = clusterObject(t, tc.before)
			}
			got, err := tc.document(before, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			want := clusterObject(t, tc.after)
			if diff := cmp.Diff(want.Cluster.Spec, got.Cluster.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if before != nil && !strings.Contains(string(got.Manifest), `"a":"b"`) {
				t.Errorf("labels are lost: %s", got.Manifest)
			}
		})
	}
}

func TestAJoinLetsInNoOtherCallerThanTheDocument(t *testing.T) {
	byCapability := demands{cluster: "prod-1", capability: &kinds.Capability{Name: "c-aa", SHA256: knownSum}, access: accessNone}
	byIdentity := demands{cluster: "prod-1", identity: "kube-apiserver", access: accessNone}
	with := func(access, path string) demands { d := byIdentity; d.access, d.kubeconfig = access, path; return d }
	four := "{capabilities: [{name: a, sha256: " + strings.Repeat("c", 64) + "}, {name: b, sha256: " + strings.Repeat("d", 64) +
		"}, {name: c, sha256: " + strings.Repeat("e", 64) + "}, " + listed(otherSum) + "]}"
	for name, tc := range map[string]struct {
		demands
		before, want string
	}{
		"a capability beside an identity":    {byCapability, "{identities: [a]}", "a capability would let in more"},
		"another identity":                   {byIdentity, "{identities: [a]}", `add "kube-apiserver" to spec.identities`},
		"an identity beside a capability":    {byIdentity, "{capabilities: [" + listed(otherSum) + "]}", "leave out --identity"},
		"a fifth capability":                 {byCapability, four, "it has 4 capabilities, the most there may be"},
		"a capability that has expired":      {byCapability, "{capabilities: [{name: old, sha256: " + knownSum + `, notAfter: "2020-01-01T00:00:00Z"}]}`, `"old" has expired`},
		"a kubeconfig beside stated facts":   {with(accessKubeconfig, "/k"), "{identities: [kube-apiserver], namespaces: {static: {}}}", "use --access none"},
		"another kubeconfig":                 {with(accessKubeconfig, "/k"), "{identities: [kube-apiserver], kubeconfig: /other}", "use --access kubeconfig=/other"},
		"a kubeconfig for a bridged cluster": {with(accessKubeconfig, "/k"), "{identities: [kube-apiserver], bridge: {}}", "use --access bridge"},
		"a bridge for one with a kubeconfig": {with(accessBridge, ""), "{identities: [kube-apiserver], kubeconfig: /k}", "use --access kubeconfig=/k"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.document(clusterObject(t, tc.before), time.Now())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "the Cluster prod-1 in force does not fit") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheEntriesOfADocumentAreKeptAndReleased(t *testing.T) {
	d := demands{cluster: "prod-1", registration: &kinds.Registration{URL: "https://mesh.example.com:8443", CABundle: nil, OwnNamespace: "portcullis-system"}}
	before := clusterObject(t, "{identities: [a], kubeconfig: /k}")
	kept, err := d.kept(before)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.registration, kept.Cluster.Spec.Registration); diff != "" || kept.Cluster.Spec.Kubeconfig != "/k" {
		t.Errorf("kept: %+v (-want +got):\n%s", kept.Cluster.Spec, diff)
	}
	without, err := released(&kept)
	if err != nil || without.Digest != before.Digest {
		t.Errorf("released: %v\n%s", err, without.Manifest)
	}
	d.registration = &kinds.Registration{URL: "https://other.example.com"}
	d.identity, d.access = "a", accessNone
	if _, err := d.document(&kept, time.Now()); err == nil || !strings.Contains(err.Error(), "use this --url, or change spec.registration") {
		t.Errorf("another URL: %v", err)
	}
}
