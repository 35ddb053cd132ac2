package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	tenantName = "tenant" // its cluster, its API server, its host and its configurations
	tenantHook = "hangs.tenant.example"
	// strangerName is an identity that no document names.
	strangerName = "stranger"
)

// users write any object to a cluster whose hooks hang.
func users() role {
	return role{
		name:   "users of a cluster",
		inputs: []string{"a review, by JSON or gRPC", "calls in shadow", "records of reviews, and of hooks in shadow", "names in metrics", "reviews that are recorded (`--record`)"},
		documents: func(*attack) []string {
			const shadow = "shadow-tenant"
			return []string{
				mesh.Cluster(tenantName, tenantName, ""),
				validating(tenantName, tenantHook, "failurePolicy: Ignore, timeoutSeconds: 2"), routeIn(tenantName, tenantName, tenantName),
				validating(shadow, "shadow."+tenantHook, "failurePolicy: Ignore, timeoutSeconds: 2"),
				strings.Replace(routeIn(shadow, tenantName, tenantName), "stream:", "shadow: true, stream:", 1),
			}
		},
		begin: func(a *attack) {
			a.hangingHost(tenantHook, "shadow."+tenantHook)
			a.review("validate", bodies())
		},
	}
}

// hangingHost has a host with hooks that do not answer, as long as the attack goes on.
func (a *attack) hangingHost(hooks ...string) {
	a.Helper()
	var hangs []hostsdk.Hook
	for _, hook := range hooks {
		hangs = append(hangs, hostsdk.Validate(hook, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	}
	h, err := hostsdk.New(hostsdk.Options{
		Name: tenantName, Dispatchers: []string{a.Hosts}, Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSConfig(a.tls(tenantName)),
	}, hangs...)
	if err != nil {
		a.Fatal(err)
	}
	a.acts.Go(func() { _ = h.Run(a.ctx) })
}

// body makes the n-th body of a POST, with its length; -1 if it is not said.
type body func(ctx context.Context, n int) (io.Reader, int64)

// review has workers post bodies for a stage.
func (a *attack) review(stage string, all []body) {
	const workers = 24
	client, url := a.client(a.certificate(a.Callers[tenantName])), a.url(tenantName, stage)
	a.act(workers, func(ctx context.Context, n int) string {
		content, length := all[n%len(all)](ctx, n)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, content)
		if err != nil {
			return err.Error()
		}
		request.ContentLength = length
		request.Header.Set("Content-Type", "application/json")
		if n%50 == 0 {
			request.Header.Set("X-Large", strings.Repeat("x", 1<<20))
		}
		return outcomeOf(client.Do(request))
	})
}

// outcomeOf reads an answer and says its status.
func outcomeOf(response *http.Response, err error) string {
	if err != nil {
		return "no answer"
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Status
}

// reviewOf is the review of a Pod, of any name, with a label so long.
func reviewOf(n, bytes int) []byte {
	data, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  podRequest(fmt.Sprintf("pod-%d", n), map[string]string{"large": strings.Repeat("l", bytes)}),
	})
	if err != nil {
		panic(err)
	}
	return data
}

// whole is a body of a known length.
func whole(text func(n int) []byte) body {
	return func(_ context.Context, n int) (io.Reader, int64) {
		data := text(n)
		return bytes.NewReader(data), int64(len(data))
	}
}

// bodies are requests that users make API servers send, and requests of callers that only pretend to be an API server.
func bodies() []body {
	deep := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":` + strings.Repeat(`{"object":`, 200_000))
	return []body{
		whole(func(n int) []byte { return reviewOf(n, 10) }),
		whole(func(n int) []byte { return reviewOf(n, 10) }),
		whole(func(n int) []byte { return reviewOf(n, 1<<20) }),
		whole(func(n int) []byte { return reviewOf(n, 2<<20) }),
		whole(func(int) []byte { return deep }),
		whole(func(int) []byte { return []byte(`{"request":{"uid":"` + "\xff\xfe" + `"}}`) }),
		whole(func(n int) []byte { // many parts
			return bytes.Replace(reviewOf(n, 0), []byte(`"metadata":`), []byte(`"spec":[`+strings.Repeat(`{},`, 500_000)+`{}],"metadata":`), 1)
		}),
		func(ctx context.Context, _ int) (io.Reader, int64) { // says that it is long, and stops
			return io.MultiReader(strings.NewReader(`{"request":`+strings.Repeat(" ", 1<<20)), until(ctx)), 2 << 20
		},
		func(ctx context.Context, _ int) (io.Reader, int64) { // does not end
			return io.LimitReader(spaces{}, 1<<30), -1
		},
	}
}

// until is a body that blocks until ctx ends.
func until(ctx context.Context) io.Reader {
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
	return reader
}

// spaces are endless.
type spaces struct{}

// Read is part of io.Reader.
func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
