package serve

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// TestEveryAnswerNamesItsRevision asks on every road, first with a host and then without one: each judged request names its
// configuration.
func TestEveryAnswerNamesItsRevision(t *testing.T) {
	t.Parallel()
	info, d := startStore(t, func(*dev, *serveConfig) {})
	authority, err := certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	o := operatorOf(t, info, issue(t, authority, devAPIServer))
	digest, _ := o.ask(http.MethodGet, "/v1/config/objects", "").at("revision", "digest").(string)
	if digest == "" {
		t.Fatal("the configuration in force has no revision")
	}
	data, err := os.ReadFile(d.path("pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	latest := string(data)
	pinned := strings.ReplaceAll(latest, "nginx:latest", "nginx:1.27")
	noHook := strings.ReplaceAll(strings.ReplaceAll(pinned, `"Pod"`, `"ConfigMap"`), `"pods"`, `"configmaps"`)
	requests := map[string]string{"no hook": noHook, "allowed": pinned, "denied": latest}

	leave := serveSamples(t, info, d)
	for _, host := range []string{"served", "nobody serves"} {
		for name, request := range requests {
			for _, road := range []string{"validate", "mutate", "admit", "enforce"} {
				t.Run(strings.Join([]string{host, name, road}, "/"), func(t *testing.T) { o.namesRevision(t, road, request, digest) })
			}
			t.Run(strings.Join([]string{host, name, "gRPC"}, "/"), func(t *testing.T) { reviewNamesRevision(t, info, request, digest) })
		}
		leave()
	}
}

// serveSamples serves the sample hooks until the function is called.
func serveSamples(t *testing.T, info listen.ReadyInfo, d *dev) (leave func()) {
	t.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "sample-host", Dispatchers: []string{info.Hosts}, Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSFiles(d.path("certs/host.crt"), d.path("certs/host.key"), d.path("certs/ca.crt")),
	}, sampleHooks()...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- h.Run(ctx) }()
	within(t, "the host", h.Ready())
	ended := false
	leave = func() {
		if stop(); !ended {
			ended = true
			if err := within(t, "the end of the host", left); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(leave)
	return leave
}

// namesRevision asks over HTTP: the revision is a header, and the annotation of every answer that has annotations.
func (o operator) namesRevision(t *testing.T, road, request, digest string) {
	t.Helper()
	response := o.begin(t.Context(), http.MethodPost, "/v1/clusters/"+devCluster+"/"+road+"?timeout=2s", request)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Portcullis-Revision"); got != digest {
		t.Errorf("%d %s: header %q, want %s", response.StatusCode, body, got, digest)
	}
	if response.StatusCode == http.StatusNoContent {
		return
	}
	var a struct {
		Response struct {
			AuditAnnotations map[string]string `json:"auditAnnotations"`
		} `json:"response"`
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Response.AuditAnnotations["revision"] != digest {
		t.Errorf("%d %s, %v: want the annotation %s", response.StatusCode, body, err, digest)
	}
}

// reviewNamesRevision asks over gRPC, by the command.
func reviewNamesRevision(t *testing.T, info listen.ReadyInfo, request, digest string) {
	t.Helper()
	var r clitest.Result
	for asked := 0; asked == 0 || asked < 5 && strings.Contains(r.Notes, "no answer within"); asked++ { // where nobody serves the answer comes a second before
		r = clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(request), "-f", "-", "-o", "json", "--timeout", "2s", "--ready-file", readyFileOf(t, info))
	}
	var told struct {
		Stages []struct {
			Stage            string            `json:"stage"`
			Revision         string            `json:"revision"`
			AuditAnnotations map[string]string `json:"auditAnnotations"`
		} `json:"stages"`
	}
	if err := json.Unmarshal([]byte(r.Out), &told); err != nil || len(told.Stages) == 0 {
		t.Fatalf("%s%s: %v", r.Out, r.Notes, err)
	}
	for _, s := range told.Stages {
		if s.Revision != digest || s.AuditAnnotations["revision"] != digest {
			t.Errorf("%s: revision %q and annotations %v, want %s", s.Stage, s.Revision, s.AuditAnnotations, digest)
		}
	}
}
