package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/e2e/collector"
	"github.com/portcullis-mesh/portcullis/e2e/kube"
	"github.com/portcullis-mesh/portcullis/e2e/mesh"
)

// TestOneTraceLeadsFromTheClientIntoTheHost follows a trace that a client
// began through kube-apiserver, dispatcher and host: three processes, each of
// which exports its own spans.
func TestOneTraceLeadsFromTheClientIntoTheHost(t *testing.T) {
	const hook = "traced.example.com"
	export := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces.Endpoint(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_BSP_SCHEDULE_DELAY=100",
	}
	r := newRoadWith(t, mesh.Options{Env: export}, kube.Validating("traced", onPods(hook)))
	r.HostProcess(t, mesh.HostOptions{
		Program: testhost, Identity: hostName, Args: []string{"-validate=" + hook}, Env: append(export, "OTEL_SERVICE_NAME=testhost"),
	})
	r.validate(t)
	trace, client := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), fmt.Sprintf("%016x", rand.Uint64())

	err := cluster.Client().CoreV1().RESTClient().Post().Namespace(r.namespace).Resource("pods").
		VersionedParams(&metav1.CreateOptions{}, metav1.ParameterCodec).
		SetHeader("Traceparent", "00-"+trace+"-"+client+"-01").
		Body(kube.Pod(r.namespace, "traced")).Do(t.Context()).Into(&corev1.Pod{})
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	eventually(t, "the trace is complete", func() error {
		road, root := ancestry(traces.Trace(trace), "portcullis.host.handle")
		const want = "testhost: portcullis.host.handle < portcullis: portcullis.call < portcullis: portcullis.review < " +
			"portcullis: portcullis.bridge.review < apiserver: HTTP POST < apiserver: Call validating webhook < "
		if !strings.HasPrefix(road, want) || root != client {
			return fmt.Errorf("the trace leads %sto %s, want %s... to the client's %s", road, root, want, client)
		}
		return nil
	})
}

// TestTheTraceOfDevLeadsIntoItsHost is the same in the one process in which
// people look first.
func TestTheTraceOfDevLeadsIntoItsHost(t *testing.T) {
	d := startDev(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+traces.Endpoint(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_BSP_SCHEDULE_DELAY=100")
	trace, client := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), fmt.Sprintf("%016x", rand.Uint64())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"validate",
		bytes.NewReader(readFile(t, filepath.Join(d.dir, "pod.json"))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+client+"-01")
	if _, err := d.Do(request); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the trace is complete", func() error {
		road, root := ancestry(traces.Trace(trace), "portcullis.host.handle")
		if !strings.HasPrefix(road, "sample-host: portcullis.host.handle < portcullis: ") || root != client {
			return fmt.Errorf("the trace leads %sto %s, want the sample host's span to the client's %s", road, root, client)
		}
		return nil
	})
}

// ancestry is the spans from the one of that name upwards, and the id of the
// last one's parent, of which nothing has arrived.
func ancestry(spans []collector.Span, name string) (road, root string) {
	next := func(s collector.Span) bool { return s.Name == name }
	for {
		i := slices.IndexFunc(spans, next)
		if i < 0 {
			return road, root
		}
		road += spans[i].Service + ": " + spans[i].Name + " < "
		root = spans[i].Parent
		next = func(s collector.Span) bool { return s.ID == root }
	}
}
