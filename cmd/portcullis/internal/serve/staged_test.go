package serve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// TestStagedObjectsAreServed: on both listeners of a dispatcher, by the certificate, until it stops.
func TestStagedObjectsAreServed(t *testing.T) {
	a, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	ready, now := readyFileOf(t, info), time.Now()
	if _, _, err := a.initializers.store.Create(t.Context(), &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{
			Cluster: devCluster, Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web",
		},
		Uid: "u-1", Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Pending: []string{"sidecar.example.com"}, DispatcherId: a.config.id,
		Created: timestamppb.New(now), Waiting: timestamppb.New(now), Expires: timestamppb.New(now.Add(time.Hour)), Object: &admissionv1.Object{Raw: []byte(`{}`)},
	}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if r := clitest.Execute(t, configcli.NewGet(), nil, "staged", "--ready-file", ready); !strings.Contains(r.Out, "dev/pods/shop/web") || !strings.Contains(r.Out, "sidecar.example.com") {
		t.Errorf("%v", r)
	}

	files, err := certs.OpenReloader(certs.ReloaderOptions{CertFile: info.ClientCert, KeyFile: info.ClientKey, CAFile: info.CA})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: files.ClientTLS("127.0.0.1")}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(ctx context.Context, query string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, info.Bridge+"/v1/clusters/dev/staged/api/v1/pods?includeUninitialized=true"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	if list, err := io.ReadAll(get(t.Context(), "").Body); err != nil || !strings.Contains(string(list), `"initializers":{"pending":[{"name":"sidecar.example.com"}]}`) {
		t.Errorf("%s, %v", list, err)
	}
	watch := get(t.Context(), "&watch=true")
	a.control.staged.service.Drain()
	if events, err := io.ReadAll(watch.Body); err != nil || strings.Count(string(events), "\n") != 1 {
		t.Errorf("%s, %v", events, err)
	}
}
