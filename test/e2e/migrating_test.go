package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// guide is docs/migrating.md as somebody follows it: in a directory of their
// own, with other addresses.
type guide struct {
	dir   string
	env   []string
	names *strings.Replacer
	steps map[string][]example // by the heading
}

// example is a block of code of the page.
type example struct{ language, text string }

// TestTheGuideToMigratingWorks follows docs/migrating.md, and wants the output
// of its commands as it stands there.
func TestTheGuideToMigratingWorks(t *testing.T) {
	citest.Soak(t, "follows docs/migrating.md with kubectl: 9 s")
	requireTools(t, "bash", "kubectl", "jq")
	g := newGuide(t)
	g.installWebhooks(t)

	g.run(t, "1. Take the configurations")
	g.run(t, "2. Say who the cluster is")
	g.write(t, "2. Say who the cluster is", 1, "conf.d/prod-1.yaml")
	g.run(t, "3. Run the mesh")
	g.trustTheAPIServer(t)
	g.serve(t, "3. Run the mesh", 1)
	g.write(t, "4. Ask it before the API server does", 0, "settings.yaml")
	g.write(t, "4. Ask it before the API server does", 1, "pod.json")
	g.compare(t, "4. Ask it before the API server does", 2)
	g.run(t, "5. Let the API servers call it")
	g.compare(t, "5. Let the API servers call it", 1)
	g.run(t, "6. Move a hook to a stream")
	g.write(t, "6. Move a hook to a stream", 1, "conf.d/routes.yaml")
	g.host(t)
	g.compare(t, "6. Move a hook to a stream", 2)
	g.run(t, "Back")

	got, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(got.Items) != 1 || got.Items[0].Name != "imagepolicy" {
		t.Errorf("back there are %v (error %v), want imagepolicy alone", got.Items, err)
	}

	const again = "rm conf.d/routes.yaml; cp conf.d/webhooks.json taken-from-prod-1.json; mv conf.d/webhooks.json taken-from-prod-2.json"
	if said, err := g.shell(t, again); err != nil {
		t.Fatal(err, said)
	}
	g.run(t, "More than one cluster")
	said, err := g.shell(t, "portcullis cluster register prod-1 --config conf.d --url https://mesh.example.com 2>warnings | grep -c url:")
	if err != nil || said != "2\n" {
		t.Errorf("two clusters: %s, %v, want two entries, those of the first one", said, err)
	}
}

func newGuide(t *testing.T) *guide {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	g := &guide{
		dir: dir,
		env: []string{
			"PATH=" + filepath.Dir(portcullis) + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig,
			"PORTCULLIS_LISTEN_ADMIN=127.0.0.1:0", "PORTCULLIS_STOP_DELAY=0s",
		},
		names: strings.NewReplacer("127.0.0.1:8443", freeAddress(t), "127.0.0.1:8444", freeAddress(t),
			"127.0.0.1:9443", serveImagePolicy(t), "/etc/portcullis", dir, "payments", cluster.Namespace(t, nil)),
	}
	g.read(t, "migrating.md", g.names)
	return g
}

// read reads the examples of a page of docs, with other names.
func (g *guide) read(t *testing.T, page string, names *strings.Replacer) {
	t.Helper()
	g.names, g.steps = names, map[string][]example{}
	block := regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")
	for _, section := range strings.Split(string(readFile(t, filepath.Join("..", "..", "docs", page))), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		for _, found := range block.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(found[2], "...") { // lines of a log are for people
				g.steps[heading] = append(g.steps[heading], example{found[1], g.names.Replace(found[2])})
			}
		}
	}
}

// freeAddress is an address of this machine that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := citest.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// serveImagePolicy is the webhook server that the guide begins with.
func serveImagePolicy(t *testing.T) (address string) {
	t.Helper()
	pair, err := cluster.Authority().Server("imagepolicy.policy.svc")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(imagePolicy))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func imagePolicy(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := webhook.Deny(http.StatusForbidden, "not by digest: nginx:1.29")(review.Request)
	if r.URL.Path == "/mutate" {
		answer = label(review.Request)
	}
	answer.UID = review.Request.UID
	w.Header().Set("Content-Type", "application/json")
	// A caller that has gone away needs no answer: the error has no reader.
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer})
}

// label gives an object that has none the label team.
func label(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil || object.Labels["team"] != "" {
		return webhook.Allow(request)
	}
	add := `{"op":"add","path":"/metadata/labels/team","value":"unowned"}`
	if object.Labels == nil {
		add = `{"op":"add","path":"/metadata/labels","value":{}},` + add
	}
	answer := webhook.Patch("[" + add + "]")(request)
	answer.Warnings = []string{"team was missing"}
	return answer
}

// installWebhooks puts the two configurations into the cluster that the guide
// moves.
func (g *guide) installWebhooks(t *testing.T) {
	t.Helper()
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			Service:  &admissionregistrationv1.ServiceReference{Namespace: "policy", Name: "imagepolicy", Path: ptr.To(path)},
			CABundle: cluster.Authority().PEM(),
		}
	}
	validating := kube.Validating("imagepolicy", onPods("imagepolicy.example.com"))
	validating.Webhooks[0].ClientConfig = at("/validate")
	mutating := kube.Mutating("team-label", onPods("team-label.example.com"))
	mutating.Webhooks[0].ClientConfig = at("/mutate")
	t.Cleanup(func() {
		if said, err := g.shell(t, "kubectl delete --ignore-not-found validatingwebhookconfigurations/imagepolicy "+
			"mutatingwebhookconfigurations/team-label validatingwebhookconfigurations/portcullis mutatingwebhookconfigurations/portcullis"); err != nil {
			t.Error(err, said)
		}
	})
	client := cluster.Client().AdmissionregistrationV1()
	if _, err := client.ValidatingWebhookConfigurations().Create(t.Context(), validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.MutatingWebhookConfigurations().Create(t.Context(), mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// trustTheAPIServer lets the mesh trust the authority of the certificate that
// kube-apiserver here presents; the guide has one authority for both.
func (g *guide) trustTheAPIServer(t *testing.T) {
	t.Helper()
	file := filepath.Join(g.dir, "certs", "ca.crt")
	if err := os.WriteFile(file, append(readFile(t, file), cluster.Authority().PEM()...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (g *guide) step(t *testing.T, heading string, i int) example {
	t.Helper()
	if i >= len(g.steps[heading]) {
		t.Fatalf("%q has %d examples, want number %d", heading, len(g.steps[heading]), i)
	}
	return g.steps[heading][i]
}

// shell runs commands and returns their output.
func (g *guide) shell(t *testing.T, commands string) (said string, err error) {
	t.Helper()
	command := exec.Command("bash", "-euo", "pipefail", "-c", commands) // also in Cleanup, after the test's context
	command.Dir, command.Env = g.dir, append(os.Environ(), g.env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// run runs the commands that a step begins with.
func (g *guide) run(t *testing.T, heading string) {
	t.Helper()
	commands := g.step(t, heading, 0)
	if commands.language != "sh" {
		t.Fatalf("%s begins with an example in %q, want commands", heading, commands.language)
	}
	if said, err := g.shell(t, commands.text); err != nil {
		t.Fatalf("%s: %v\n%s", heading, err, said)
	}
}

// runBlock runs the commands of another block of a step than the first.
func (g *guide) runBlock(t *testing.T, heading string, n int) {
	t.Helper()
	if said, err := g.shell(t, g.step(t, heading, n).text); err != nil {
		t.Fatalf("%s: %v\n%s", heading, err, said)
	}
}

func (g *guide) write(t *testing.T, heading string, i int, file string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(g.step(t, heading, i).text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// compare runs a command and compares its output with the output that the page has under it.
func (g *guide) compare(t *testing.T, heading string, i int) {
	t.Helper()
	command, want, _ := strings.Cut(strings.TrimPrefix(g.step(t, heading, i).text, "$ "), "\n")
	said, _ := g.shell(t, command) // a command that is denied ends with an error
	if diff := cmp.Diff(stable(want), stable(said)); diff != "" {
		t.Errorf("%s: %s (-guide +said):\n%s", heading, command, diff)
	}
}

// stable is the output of a command, without the parts that differ each time.
func stable(said string) string {
	said = regexp.MustCompile(`[0-9.]+(µs|ms|s)\b|[0-9a-f]{32,}|[0-9a-f-]{36}|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{5}`).ReplaceAllString(said, "X")
	return regexp.MustCompile(` {2,}`).ReplaceAllString(said, "  ")
}

func (g *guide) serve(t *testing.T, heading string, i int) {
	t.Helper()
	readyFile := filepath.Join(g.dir, "ready.json")
	settings := filepath.Join(g.dir, "serve-settings.yaml")
	if err := os.WriteFile(settings, []byte("ready-file: "+readyFile+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	started, err := process.Start(process.Command{
		Path: "bash", Args: []string{"-c", `cd "$0" && exec ` + g.step(t, heading, i).text, g.dir},
		Env: append(g.env, "PORTCULLIS_SETTINGS="+settings), LogFile: filepath.Join(g.dir, "serve.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(0); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(started.Tail(50))
		}
	})
	var ready struct{ Admin string }
	eventually(t, "the mesh serves", func() error { return mesh.ReadReadyFile(readyFile, &ready) })
}

// host serves the hook by streams, until the test ends.
func (g *guide) host(t *testing.T) {
	t.Helper()
	file := func(name string) string { return filepath.Join(g.dir, "certs", name) }
	host, err := hostsdk.New(hostsdk.Options{
		Name: "imagepolicy", Instance: "vm-UPWW4BFT", Dispatchers: []string{g.names.Replace("127.0.0.1:8444")},
		TLS: hostsdk.TLSFiles(file("host.crt"), file("host.key"), file("ca.crt")),
	}, hostsdk.Validate("imagepolicy.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("images are named by digest here: nginx:1.29"), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the hook is in rotation", func() error {
		select {
		case <-host.Ready():
			return nil
		default:
			return errors.New("not yet")
		}
	})
}
