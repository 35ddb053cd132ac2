package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// TestAHookHasTheTimeThatItsTimeoutSays has hooks alone behind an entry that
// `cluster register` printed: a host over a stream, and a webhook over HTTPS.
// The host is told that it has at least 95 of 100 parts of its timeoutSeconds,
// the webhook all of them. In the soak both take 80.
func TestAHookHasTheTimeThatItsTimeoutSays(t *testing.T) {
	citest.Gate(t, "has a mesh for each of four timeouts: 3 s")
	const stream, https = "stream.example.com", "https.example.com"
	timeouts := []int{1, 2, 3, 5, 10}
	for _, seconds := range timeouts[citest.Rounds(1, 1, 0):] { // a machine that is busy may need a second
		t.Run(fmt.Sprintf("%ds", seconds), func(t *testing.T) {
			timeout := time.Duration(seconds) * time.Second
			takes := timeout * time.Duration(citest.Rounds(0, 0, 80)) / 100
			server := webhook.Serve(t, cluster.Authority(), func(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				<-time.After(takes)
				return webhook.Allow(q)
			})
			overStream, overHTTPS := onPods(stream), atURL(server, https, "/")
			overStream.Timeout, overHTTPS.Timeout = timeout, timeout
			r := newRoadWith(t, mesh.Options{
				Env:       []string{"PORTCULLIS_WEBHOOK_KUBECONFIG=" + webhookKubeconfig(t)},
				Documents: []string{mesh.Document(t, kube.Validating("https", overHTTPS))},
			}, kube.Validating("stream", overStream))
			deadlines := make(chan time.Time, 8)
			r.host(t, hostsdk.Validate(stream, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
				deadline, _ := ctx.Deadline()
				deadlines <- deadline
				select {
				case <-time.After(takes):
					return hostsdk.Allow(), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}))
			r.register(t)

			begun := time.Now()
			if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); err != nil {
				t.Fatalf("create a pod: %v", err)
			}

			if has := (<-deadlines).Sub(begun); has < timeout*95/100 { // it is more on a machine that is busy
				t.Errorf("the host has %v of %v", has, timeout)
			}
			if query, want := server.Calls()[0].URL.RawQuery, "timeout="+timeout.String(); query != want {
				t.Errorf("the webhook was called with %s, want %s", query, want)
			}
		})
	}
}
