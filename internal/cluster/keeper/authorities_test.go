package keeper

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const judged = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: policy}
spec: {configuration: policy, stream: {}, hosts: [h], clusters: [prod-1]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [a], kubeconfig: /k, registration: {url: "https://mesh.example.com", caFile: FILE}}
`

// takeover is enough time for another dispatcher to write.
const takeover = 4 * Interval

// keeps runs a dispatcher, which reads the authorities from a file, until the test ends.
func (s *apiServer) keeps(t *testing.T, id, file string) *Keeper {
	t.Helper()
	return s.keepsLogged(t, id, strings.Replace(judged, "FILE", file, 1), nil)
}

// keepsLogged is keeps of documents, with a log.
func (s *apiServer) keepsLogged(t *testing.T, id, documents string, log *slog.Logger) *Keeper {
	t.Helper()
	objects, problems := configtest.Decode("mesh.yaml", []byte(documents))
	snapshot, more := config.Compile("one", objects)
	if err := append(problems, more...).Err(); err != nil {
		t.Fatal(err)
	}
	var clusters []*kinds.Cluster
	for _, o := range objects {
		if o.Cluster != nil {
			clusters = append(clusters, o.Cluster)
		}
	}
	now := Generation{Snapshot: snapshot, Clusters: clusters, Fresh: true, Next: make(chan struct{})}
	api, client := s.client(id)
	k, err := New(Options{
		ID: id, Logger: log, Metrics: prometheus.NewRegistry(), Generation: func() Generation { return now },
		API: func(context.Context, string) (*rest.Config, *http.Client, error) { return api, client, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return k
}

func newAPIServer() *apiServer {
	return &apiServer{objects: map[string]map[string]any{}, writes: map[string]int{}}
}

// passes lets time pass.
func passes(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestEntriesFollowTheFileOfTheirAuthorities: with the configuration as it is.
func TestEntriesFollowTheFileOfTheirAuthorities(t *testing.T) {
	first, second := string(authority(t).CertPEM), string(authority(t).CertPEM)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, first)
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		k := server.keeps(t, "one", file)
		passes(Interval)
		for _, text := range []string{first, first + second, second} {
			write(t, file, text)
			passes(Interval)
			if got := server.bundles(t); got != text {
				t.Errorf("the entries trust\n%s\nwant\n%s", got, text)
			}
		}
		writes := server.writesOf("one")
		for _, bad := range []string{"", "no PEM", second + second[:100]} {
			write(t, file, bad)
			passes(takeover)
			if s := k.States(); server.bundles(t) != second || s[0].Err == nil || s[0].InSync || s[0].Leads {
				t.Errorf("with the file %q: %+v", bad, s)
			}
		}
		if now := server.writesOf("one"); now != writes {
			t.Errorf("%d writes with a bad file", now-writes)
		}
		write(t, file, first)
		passes(takeover)
		if s := k.States(); server.bundles(t) != first || s[0].Err != nil || !s[0].InSync || !s[0].Leads {
			t.Errorf("with a good file again: %+v", s)
		}
	})
}

// TestADispatcherWithoutTheFileLetsAnotherWrite has one whose volume is gone.
func TestADispatcherWithoutTheFileLetsAnotherWrite(t *testing.T) {
	first, second := string(authority(t).CertPEM), string(authority(t).CertPEM)
	files := [2]string{filepath.Join(t.TempDir(), "one.crt"), filepath.Join(t.TempDir(), "two.crt")}
	write(t, files[0], first)
	write(t, files[1], first)
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		one := server.keeps(t, "one", files[0])
		passes(Interval)
		server.keeps(t, "two", files[1])
		passes(Interval)
		if !one.States()[0].Leads {
			t.Fatal("the first does not lead")
		}
		if err := os.Remove(files[0]); err != nil {
			t.Fatal(err)
		}
		write(t, files[1], second)
		passes(takeover)
		if got := server.bundles(t); got != second || one.States()[0].Leads {
			t.Errorf("the entries trust\n%s\nwant\n%s", got, second)
		}
	})
}

// TestADispatcherThatWaitsForAnotherAsksOnce: the file of the dispatcher that writes may be older for two minutes.
func TestADispatcherThatWaitsForAnotherAsksOnce(t *testing.T) {
	first, second := string(authority(t).CertPEM), string(authority(t).CertPEM)
	files := [2]string{filepath.Join(t.TempDir(), "one.crt"), filepath.Join(t.TempDir(), "two.crt")}
	write(t, files[0], first)
	write(t, files[1], second)
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.keeps(t, "one", files[0])
		passes(Interval)
		two := server.keeps(t, "two", files[1])
		passes(2 * time.Minute)
		// The two objects, each time that the resources of the cluster were read again.
		if n := server.writesOf("two"); n == 0 || n > 2*3 || server.bundles(t) != first {
			t.Errorf("%d dry-run writes of a dispatcher that does not lead", n)
		}
		if s := two.States()[0]; s.InSync || s.Err != nil || s.behind(s.Digest) == "" {
			t.Errorf("state %+v", s)
		}
		write(t, files[0], second)
		passes(takeover)
		if s := two.States()[0]; !s.InSync || server.bundles(t) != second {
			t.Errorf("once it was written: %+v", s)
		}
	})
}
