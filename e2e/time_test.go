package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
	"github.com/portcullis-mesh/portcullis/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/e2e/webhook"
)

// TestAHookHasTheTimeThatItsTimeoutSays has hooks answer when 95 of 100 parts
// of their timeoutSeconds are over, alone behind an entry that `cluster
// register` printed: a host over a stream, and a webhook over HTTPS.
func TestAHookHasTheTimeThatItsTimeoutSays(t *testing.T) {
	citest.Soak(t, "has handlers take nearly all of their time: 24 s")
	const stream, https = "stream.example.com", "https.example.com"
	for _, seconds := range []int{1, 2, 3, 5, 10} {
		t.Run(fmt.Sprintf("%ds", seconds), func(t *testing.T) {
			timeout := time.Duration(seconds) * time.Second
			server := webhook.Serve(t, cluster.Authority(), func(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				<-time.After(timeout * 95 / 100) // what the handler takes
				return webhook.Allow(q)
			})
			overStream, overHTTPS := onPods(stream), atURL(server, https, "/")
			overStream.Timeout, overHTTPS.Timeout = timeout, timeout
			r := newRoadWith(t, mesh.Options{
				Env:       []string{"PORTCULLIS_WEBHOOK_KUBECONFIG=" + webhookKubeconfig(t)},
				Documents: []string{mesh.Document(t, kube.Validating("https", overHTTPS))},
			}, kube.Validating("stream", overStream))
			told := make(chan time.Duration, 8)
			r.host(t, func(h *hostsdk.Host) {
				h.Validate(stream, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
					deadline, _ := ctx.Deadline()
					told <- time.Until(deadline)
					select {
					case <-time.After(timeout * 95 / 100):
						return hostsdk.Allow(), nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
			})
			r.register(t)

			if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); err != nil {
				t.Fatalf("create a pod: %v", err)
			}

			t.Logf("timeoutSeconds %d: the host was told %s, the webhook %s", seconds, <-told, server.Calls()[0].URL.RawQuery)
		})
	}
}
