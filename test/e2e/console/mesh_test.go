package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// The hooks. All see each Pod.
const (
	quick   = "quick.example.com"   // allows
	slow    = "slow.example.com"    // takes a while
	broken  = "broken.example.com"  // gives no verdict, and fails open
	shadow  = "shadow.example.com"  // denies, and decides nothing
	waiting = "waiting.example.com" // is new, and has no host
	quota   = "quota.example.com"   // is an initializer, for which no controller acts
)

const (
	host      = "policy-host"
	apiServer = "prod-1-apiserver"
	// slowly is how long the slow hook takes.
	slowly = 600 * time.Millisecond
	// markup is a text that would be a script if the page took it as HTML.
	markup = `<img src=x onerror="document.title='taken'">`
)

// configuration is a hook with a configuration and a route of its own.
func configuration(hook, policy, route string) []string {
	name, _, _ := strings.Cut(hook, ".")
	return []string{fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: %s
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: %s
  clientConfig: {url: "https://unused.example.com"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`, name, hook, policy), mesh.Route(name, host) + route}
}

// initializer is the configuration of quota. It has 9 s, of the 10 s that a caller has.
func initializer() string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: quota}
initializers:
- name: %s
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: quota}
spec: {configuration: quota, stage: initialize, timeout: 9s, hosts: [quota-controller]}
`, quota)
}

// clusters are a cluster that sends reviews, and another in an emergency.
func clusters() []string {
	return []string{mesh.Cluster("prod-1", apiServer, ""), fmt.Sprintf(`%s  bypass:
    breakGlass:
      until: %q
      reason: %q
`, mesh.Cluster("edge-2", "edge-2-apiserver", ""), time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "INC-42: imagepolicy refuses everything")}
}

// scene is a mesh with each state of a hook.
type scene struct {
	mesh       *mesh.Mesh
	dispatcher *mesh.Dispatcher
	caller     *mesh.Caller
	flags      []string // of an operator
}

func newScene(t *testing.T, portcullis string) *scene {
	t.Helper()
	callers, err := pki.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	documents := append(clusters(), initializer())
	for _, more := range [][]string{
		configuration(quick, "Fail", ""), configuration(slow, "Fail", ""), configuration(broken, "Ignore", ""),
		configuration(shadow, "Fail", "  shadow: true\n"),
	} {
		documents = append(documents, more...)
	}
	m := mesh.New(t, mesh.Options{Portcullis: portcullis, Callers: callers, Documents: documents, Args: []string{
		"--operator=operator", "--data-dir=" + t.TempDir(),
	}})
	s := &scene{mesh: m, dispatcher: m.Serve(t)}
	m.Host(t, host, hooks()...)
	pair, err := callers.Client(apiServer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	s.caller = mesh.NewCaller(t, m.Authority().Pool(), certificate, true)
	cert, key := m.Certify(t, "operator")
	s.flags = []string{"--server=" + s.dispatcher.Hosts, "--ca=" + m.AuthorityFile(), "--cert=" + cert, "--key=" + key}
	s.apply(t, portcullis, configuration(waiting, "Ignore", "")...)
	return s
}

// apply adds objects to the store, whose hooks are pending until a host serves them.
func (s *scene) apply(t *testing.T, portcullis string, documents ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), portcullis, append([]string{"apply", "-f", "-"}, s.flags...)...)
	cmd.Stdin = strings.NewReader(strings.Join(documents, "\n---\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
}

func hooks() []hostsdk.Hook {
	return []hostsdk.Hook{
		hostsdk.Validate(quick, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }),
		hostsdk.Validate(slow, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			<-time.After(slowly)
			return hostsdk.Allow(), nil
		}),
		hostsdk.Validate(broken, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return nil, errors.New("no rules") }),
		hostsdk.Validate(shadow, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("not yet"), nil
		}),
	}
}

// review sends the review of a Pod.
func (s *scene) review(t *testing.T, uid string) {
	t.Helper()
	name := "web-" + uid
	if uid == "u1" {
		name = markup
	}
	response, err := s.send(t.Context(), "validate", uid, name)
	if err != nil || !response.Allowed {
		t.Fatalf("review %s: %v, %v", uid, response, err)
	}
}

// hold sends reviews of the CREATE of a Pod that an initializer holds, one after the other until ctx ends.
func (s *scene) hold(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = s.send(ctx, "mutate", fmt.Sprint("held-", n), "held") // it ends in the middle
	}
}

// send sends the review of the CREATE of a Pod.
func (s *scene) send(ctx context.Context, stage, uid, name string) (*admissionv1.AdmissionResponse, error) {
	return s.caller.Review(ctx, s.dispatcher.Bridge+"/v1/clusters/prod-1/"+stage, &admissionv1.AdmissionRequest{
		UID: types.UID(uid), Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: admissionv1.Create,
		Namespace: "shop", Name: name, UserInfo: authenticationv1.UserInfo{Username: "jane"},
		Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}`)},
	})
}

// console runs the command, and returns the address that it prints.
func (s *scene) console(t *testing.T, portcullis string) string {
	t.Helper()
	output := filepath.Join(t.TempDir(), "console.log")
	started, err := process.Start(process.Command{
		Path: portcullis, Args: append([]string{"console", "--listen=127.0.0.1:0"}, s.flags...), LogFile: output,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(patience); err != nil {
			t.Error(err)
		}
		if err := started.Err(); err != nil {
			t.Errorf("the console ended with %v", err)
		}
	})
	var address string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = started.Await(ctx, func(context.Context) error {
		text, err := os.ReadFile(output)
		if err != nil {
			return err
		}
		if address = regexp.MustCompile(`http://\S+`).FindString(string(text)); address == "" {
			return errors.New("no address yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return address
}
