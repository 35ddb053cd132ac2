package serve

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// emptyAPIServer answers the requests of a dispatcher for a cluster without objects. It stores the entries and the Leases that it is sent,
// each by its name: so it may be the API server of many clusters.
type emptyAPIServer struct {
	kubeconfig string
	watches    atomic.Int64 // that are open

	mu      sync.Mutex
	objects map[string]metav1.Object // by path
	version int
}

func newEmptyAPIServer(t *testing.T) *emptyAPIServer { return newEmptyAPIServerOf(t, nil) }

// newEmptyAPIServerOf is newEmptyAPIServer with a handler that answers in its place.
func newEmptyAPIServerOf(t *testing.T, instead http.Handler) *emptyAPIServer {
	t.Helper()
	s := &emptyAPIServer{objects: map[string]metav1.Object{}}
	if instead == nil {
		instead = s
	}
	server := httptest.NewUnstartedServer(instead)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	file.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "token"}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	file.CurrentContext = "c"
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *emptyAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
		kind = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		s.watches.Add(1)
		defer s.watches.Add(-1)
		keepWatch(w, r, kind)
	case r.URL.Path == "/api" || r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_ = json.NewEncoder(w).Encode(discovered(r.URL.Path == "/api")) // the client may have gone
	case strings.Contains(r.URL.Path, "webhookconfigurations") || strings.Contains(r.URL.Path, "/leases"):
		code, answer := s.do(r)
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	default:
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind.APIVersion, kind.Kind+"List")
	}
}

// do answers a request for one object that is stored.
func (s *emptyAPIServer) do(r *http.Request) (code int, answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[r.URL.Path]
	if r.Method == http.MethodGet && now != nil {
		return http.StatusOK, now
	}
	if r.Method == http.MethodGet || r.Method == http.MethodPut && now == nil {
		return http.StatusNotFound, statusOf(metav1.StatusReasonNotFound)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // JSON or protobuf
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	object := sent.(metav1.Object)
	at := r.URL.Path
	if r.Method == http.MethodPost {
		at += "/" + object.GetName()
	} else if object.GetResourceVersion() != now.GetResourceVersion() {
		return http.StatusConflict, statusOf(metav1.StatusReasonConflict)
	}
	if !r.URL.Query().Has("dryRun") {
		s.version++
		object.SetResourceVersion(strconv.Itoa(s.version))
		object.SetUID(types.UID(at))
		s.objects[at] = object
	}
	return http.StatusOK, object
}

func statusOf(reason metav1.StatusReason) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason}
}

// entryOf is the URL of the first validating entry of a cluster.
func (s *emptyAPIServer) entryOf(cluster string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, ok := s.objects["/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"+cluster].(*admissionregistrationv1.ValidatingWebhookConfiguration)
	if !ok || len(entries.Webhooks) == 0 {
		return "", fmt.Errorf("%s has no entry", cluster)
	}
	return *entries.Webhooks[0].ClientConfig.URL, nil
}

// heldLeases is how many Leases somebody holds.
func (s *emptyAPIServer) heldLeases() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if lease, ok := o.(*coordinationv1.Lease); ok && ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
			n++
		}
	}
	return n
}

// keepWatch sends bookmarks until the client ends the watch.
func keepWatch(w http.ResponseWriter, r *http.Request, kind metav1.TypeMeta) {
	bookmark := fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1","annotations":{%q:"true"}}}}`+"\n",
		kind.APIVersion, kind.Kind, metav1.InitialEventsAnnotationKey)
	alive := time.NewTicker(20 * time.Second)
	defer alive.Stop()
	for {
		if _, err := w.Write(bookmark); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // the next write tells
		select {
		case <-alive.C:
		case <-r.Context().Done():
			return
		}
	}
}

// discovered is the discovery of a cluster: namespaces and Pods.
func discovered(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
	if core {
		version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for resource, kind := range map[string]string{"namespaces": "Namespace", "pods": "Pod"} {
			version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: resource, ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: kind},
			})
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{Versions: []apidiscoveryv2.APIVersionDiscovery{version}})
	}
	return list
}
