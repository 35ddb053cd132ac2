package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

const (
	chartDir  = "../chart/portcullis"
	bridgeDir = "../chart/portcullis-bridge"
)

// bridgeValues are those without which the chart of bridges does not render.
const bridgeValues = "cluster=prod-1,dispatchers={mesh.example.com:8444},callers.capabilitySecretName=api-servers"

// render renders the chart of dispatchers with values.
func render(t *testing.T, set ...string) (*Rendered, error) {
	t.Helper()
	return Render(Options{Chart: chartDir, Release: "portcullis", Namespace: "portcullis-system", Set: set, Notes: true})
}

// renderBridge renders the chart of bridges with values.
func renderBridge(t *testing.T, set ...string) (*Rendered, error) {
	t.Helper()
	return Render(Options{Chart: bridgeDir, Release: "portcullis-bridge", Namespace: "portcullis-system", Set: set, Notes: true})
}

// TestBadValuesAreRefused: by the schema, or where values have to fit each other, by the templates.
func TestBadValuesAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"replica=2":                               "additional properties 'replica' not allowed",
		"image.name=x":                            "additional properties 'name' not allowed",
		"store.etcd.endpoint=x":                   "additional properties 'endpoint' not allowed",
		"exampleHost.image.pullSecrets=x":         "additional properties 'pullSecrets' not allowed",
		"replicas=0":                              "at '/replicas'",
		"replicas=two":                            "at '/replicas'",
		"store.kind=sqlite":                       "at '/store/kind'",
		"image.digest=sha256:12":                  "at '/image/digest'",
		"image.pullPolicy=Sometimes":              "at '/image/pullPolicy'",
		"serve.stopDelaySeconds=-1":               "at '/serve/stopDelaySeconds'",
		"serve.extraArgs={listen=:1}":             "at '/serve/extraArgs/0'",
		"service.port=70000":                      "at '/service/port'",
		"certificates.secretName=":                "at '/certificates/secretName'",
		"certificates.certManager.duration=90d":   "at '/certificates/certManager/duration'",
		"certificates.self.overlap=7d":            "at '/certificates/self/overlap'",
		"certificates.self.clients[0].identity=a": "at '/certificates/self/clients/0'",
		"certificates.self.dnsNames={a=b}":        "at '/certificates/self/dnsNames/0'",
		"certificates.self.enabled=true,certificates.certManager.enabled=true": "write the same Secrets",
		"configuration.files.hooks\\.txt=x":                                    "hooks.txt",
		"networkPolicy.hostsFrom[0].pods=x":                                    "additional properties 'pods' not allowed",
		"podDisruptionBudget.maxUnavailable=0":                                 "at '/podDisruptionBudget/maxUnavailable'",
		"operatorAuthorities={my-ca}":                                          "at '/operatorAuthorities/0'",
		"fullnameOverride=Mesh":                                                "at '/fullnameOverride'",
		"cluster.capabilities[0].name=a":                                       "at '/cluster/capabilities/0'",
		"cluster.name=a,cluster.registration.url=http://mesh":                  "at '/cluster/registration/url'",
		"cluster.registration.url=https://mesh":                                "cluster.registration stands in the Cluster document",
		"capabilityKey.secretName=A":                                           "at '/capabilityKey/secretName'",
		"cluster.name=a,cluster.registration.url=https://a,cluster.rotateCapability=30d,capabilityKey.secretName=b": "at '/cluster/rotateCapability'",
		"cluster.name=a,cluster.registration.url=https://a,cluster.rotateCapability=720h":                           "set cluster.registration.url and capabilityKey.secretName",
		"store.kind=embedded":                    "set replicas to 1",
		"store.kind=etcd":                        "needs store.etcd.endpoints",
		"cluster.read=false,cluster.name=prod-1": "cluster.name needs cluster.read",
		"configuration.existingConfigMap=mine,exampleHost.enabled=true":             "exampleHost.enabled is written into the ConfigMap",
		"configuration.existingConfigMap=mine,configuration.files.hooks\\.yaml=x":   "configuration.files is written into the ConfigMap",
		"configuration.existingConfigMap=mine,cluster.name=prod-1,cluster.read=yes": "at '/cluster/read'",
	} {
		if _, err := render(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: error %v, want one that says %s", set, err, want)
		}
	}
}

// TestBadValuesOfABridgeAreRefused: a bridge that knows no caller would refuse every review.
func TestBadValuesOfABridgeAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"dispatchers={mesh:8444},callers.capabilitySecretName=a": "cluster is missing",
		"cluster=prod-1,callers.capabilitySecretName=a":          "dispatchers are missing",
		"cluster=prod-1,dispatchers={mesh:8444}":                 "nothing says how the API servers are known",
		bridgeValues + ",callers.identities={kube-apiserver}":    "go together",
		bridgeValues + ",callers.caSecretName=ca":                "go together",
		bridgeValues + ",dispatchers={mesh}":                     "at '/dispatchers/0'",
		bridgeValues + ",replicas=17":                            "at '/replicas'",
		bridgeValues + ",certificates.meshSecret=x":              "additional properties 'meshSecret' not allowed",
	} {
		if _, err := renderBridge(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: error %v, want one that says %s", set, err, want)
		}
	}
	if _, err := renderBridge(t, bridgeValues); err != nil {
		t.Error(err)
	}
}

func TestHelmHasNothingToSayAboutTheCharts(t *testing.T) {
	for dir, set := range map[string][]string{chartDir: nil, bridgeDir: {bridgeValues}, hostDir: {hostValues}} {
		o := Options{Set: set}
		values, err := o.values()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All(dir, values, "portcullis-system", true).Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	}
}

// TestTheManifestsAreThoseOfTheChart: `make manifests` writes them.
func TestTheManifestsAreThoseOfTheChart(t *testing.T) {
	const dir = "../manifests"
	rendered, err := Render(Options{
		Chart: chartDir, Release: "portcullis", Namespace: "portcullis-system", ValuesFiles: []string{"../manifests-values.yaml"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := rendered.Files()
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("%s is not what the chart makes (error %v): run `make manifests`", name, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, exists := want[file.Name()]; !exists {
			t.Errorf("%s is a file that the chart does not make: run `make manifests`", file.Name())
		}
	}
}

// TestTheManifestOfCertificatesIsThatOfTheChart: it is beside deploy/manifests, for those who want it.
func TestTheManifestOfCertificatesIsThatOfTheChart(t *testing.T) {
	rendered, err := Render(Options{
		Chart: chartDir, Release: "portcullis", Namespace: "portcullis-system", ValuesFiles: []string{"../manifests-values.yaml"},
		Set: []string{"certificates.self.enabled=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := rendered.Only("templates/certificates-self.yaml").String()
	if got, err := os.ReadFile("../certificates-self.yaml"); err != nil || string(got) != want || !strings.Contains(want, "kind: CronJob") {
		t.Errorf("certificates-self.yaml is not what the chart makes (error %v): run `make manifests`", err)
	}
}

// TestNotesNameWhatIsThere: the notes name objects of the chart.
func TestNotesNameWhatIsThere(t *testing.T) {
	rendered, err := render(t, "fullnameOverride=mesh", "store.kind=embedded", "replicas=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"statefulset/mesh\n", "mesh-hosts.portcullis-system.svc:8444", "create secret generic portcullis-tls"} {
		if !strings.Contains(rendered.Notes, name) {
			t.Errorf("the notes do not say %q:\n%s", name, rendered.Notes)
		}
	}
}

// TestLaterValuesWin: files in their order, then --set, as with helm.
func TestLaterValuesWin(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	o := Options{
		ValuesFiles: []string{file("a.yaml", "replicas: 2\nimage: {tag: a, repository: r}\n"), file("b.yaml", "replicas: 3\nimage: {tag: b}\n")},
		Set:         []string{"image.tag=c"},
	}
	values, err := o.values()
	if err != nil {
		t.Fatal(err)
	}
	image, _ := values["image"].(map[string]any)
	if values["replicas"] != float64(3) || image["tag"] != "c" || image["repository"] != "r" {
		t.Errorf("the values are %v", values)
	}
	o.ValuesFiles = []string{file("c.yaml", "replicas: 1\nreplicas: 2\n")}
	if _, err := o.values(); err == nil {
		t.Error("a key that stands twice is no error")
	}
}
