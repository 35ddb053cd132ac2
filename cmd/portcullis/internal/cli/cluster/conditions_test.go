package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// apiServerOfTest keeps webhook configurations, without their matchConditions if it is an older one.
type apiServerOfTest struct {
	older bool

	mu      sync.Mutex
	objects map[string]runtime.Object // by path
}

// ServeHTTP reads, makes and replaces objects.
func (s *apiServerOfTest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	object, path := s.objects[r.URL.Path], r.URL.Path
	if r.Method == http.MethodGet {
		if object == nil {
			w.WriteHeader(http.StatusNotFound)
			object = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		}
		_ = json.NewEncoder(w).Encode(object)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		object, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var name string
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			if name = o.Name; s.older {
				o.Webhooks[i].MatchConditions = nil
			}
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		name = o.Name
	}
	if r.Method == http.MethodPost {
		path += "/" + name
	}
	if r.URL.Query().Get("dryRun") == "" {
		s.objects[path] = object
	}
	_ = json.NewEncoder(w).Encode(object)
}

// kubeconfig is a file that leads to the server.
func (s *apiServerOfTest) kubeconfig(t *testing.T) string {
	t.Helper()
	s.objects = map[string]runtime.Object{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return clitest.Write(t, "kubeconfig", string(data))
}

func TestClusterRegisterWarnsOfAnAPIServerThatDropsMatchConditions(t *testing.T) {
	wildcard := strings.Replace(registeredHooks, "resources: [pods]", `resources: ["*"]`, 1)
	dir := configuration(t, map[string]string{"hooks.yaml": wildcard, "mesh.yaml": registeredMesh})
	const warning = "warning: validatingwebhookconfiguration/portcullis: the API server has dropped the matchConditions of fail-closed.validate.portcullis"
	for _, older := range []bool{true, false} {
		kubeconfig := (&apiServerOfTest{older: older}).kubeconfig(t)
		for i, does := range [][]string{{"--apply", "--dry-run"}, {"--apply"}, {"--apply"}, {"--diff"}} {
			r := register(t, append([]string{"prod-1", "--config", dir, "--url", "https://mesh", "--kubeconfig", kubeconfig}, does...)...)
			if r.Code != 0 && !slices.Contains(does, "--diff") || strings.Contains(r.Notes, warning) != older || strings.Count(r.Notes, "dropped") > 1 {
				t.Errorf("%v, older: %t: exit code %d: %s%s", does, older, r.Code, r.Out, r.Notes)
			}
			if again := strings.Contains(r.Notes, "they are written once more in 5s"); again != (i == 1) {
				t.Errorf("command %d says that the entries are written once more: %t", i, again)
			}
		}
	}
}
