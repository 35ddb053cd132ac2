package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/collector"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
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
		road, root := ancestry(traces.Trace(trace), "handle "+hook)
		const want = "testhost: handle traced.example.com < portcullis: call traced.example.com < portcullis: review validate < " +
			"portcullis: POST /v1/clusters/{cluster}/validate < apiserver: HTTP POST < apiserver: Call validating webhook < "
		if !strings.HasPrefix(road, want) || root != client {
			return fmt.Errorf("the trace leads %sto %s, want %s... to the client's %s", road, root, want, client)
		}
		return nil
	})
	phases := map[string]string{
		"handle " + hook:                       "queued",
		"call " + hook:                         "sent received",
		"review validate":                      "held matched encoded",
		"POST /v1/clusters/{cluster}/validate": "authorized read decoded encoded",
	}
	for _, s := range traces.Trace(trace) {
		want, ours := phases[s.Name]
		if got := strings.Join(s.Events, " "); ours && got != want {
			t.Errorf("the phases of %s are %q, want %q", s.Name, got, want)
		}
		if ours && s.Cluster != clusterName {
			t.Errorf("%s is of cluster %q", s.Name, s.Cluster)
		}
	}
	wantInJaeger(t, trace, client)
}

// TestOneTraceLeadsThroughABridgeIntoTheHost has one more process between
// kube-apiserver and the dispatcher.
func TestOneTraceLeadsThroughABridgeIntoTheHost(t *testing.T) {
	citest.Gate(t, "covers traces: a second")
	const hook = "traced.example.com"
	export := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces.Endpoint(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_BSP_SCHEDULE_DELAY=100",
	}
	m := newMesh(t, mesh.Options{Env: export, Documents: []string{bridged}}, kube.Validating("traced", onPods(hook)))
	r := newRoadOn(t, m, m.Serve(t))
	r.HostProcess(t, mesh.HostOptions{
		Program: testhost, Identity: hostName, Args: []string{"-validate=" + hook}, Env: append(slices.Clip(export), "OTEL_SERVICE_NAME=testhost"),
	})
	r.startBridgeWith(t, append(slices.Clip(export), "OTEL_SERVICE_NAME=bridge"))
	r.validate(t)
	create := func(traceparent string) error {
		return cluster.Client().CoreV1().RESTClient().Post().Namespace(r.namespace).Resource("pods").
			VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ParameterCodec).
			SetHeader("Traceparent", traceparent).
			Body(kube.Pod(r.namespace, "traced")).Do(t.Context()).Into(&corev1.Pod{})
	}
	trace, client := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), fmt.Sprintf("%016x", rand.Uint64())
	eventually(t, "a Pod passes", func() error { return create("00-" + trace + "-" + client + "-01") })

	eventually(t, "the trace is complete", func() error {
		road, root := ancestry(traces.Trace(trace), "handle "+hook)
		const want = "testhost: handle traced.example.com < portcullis: call traced.example.com < portcullis: review validate < " +
			"portcullis: portcullis.admission.v1.AdmissionService/Review < " +
			"bridge: portcullis.admission.v1.AdmissionService/Review < " + // the attempt
			"bridge: POST /v1/clusters/{cluster}/validate < apiserver: HTTP POST < apiserver: Call validating webhook < "
		if !strings.HasPrefix(road, want) || root != client {
			return fmt.Errorf("the trace leads %sto %s, want %s... to the client's %s", road, root, want, client)
		}
		return nil
	})
	wantInJaeger(t, trace, client)
}

// TestTheTraceOfDevLeadsIntoItsHost is the same in the one process in which
// people look first.
func TestTheTraceOfDevLeadsIntoItsHost(t *testing.T) {
	citest.Gate(t, "covers traces: a second")
	export := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces.Endpoint(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_BSP_SCHEDULE_DELAY=100",
	}
	const hook = "pinned-images.portcullis.dev"
	d := startDev(t, export...)
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
		road, root := ancestry(traces.Trace(trace), "handle "+hook)
		if !strings.HasPrefix(road, "sample-host: handle "+hook+" < portcullis: call "+hook+" < portcullis: ") || root != client {
			return fmt.Errorf("the trace leads %sto %s, want the sample host's span to the client's %s", road, root, client)
		}
		return nil
	})

	trace = reviewInTrace(t, d, export)
	eventually(t, "the trace of portcullis review is complete", func() error {
		const want = "sample-host: handle " + hook + " < portcullis: call " + hook + " < portcullis: review validate < " +
			"portcullis: portcullis.admission.v1.AdmissionService/Review < portcullis-review: portcullis review < "
		if road, root := ancestry(traces.Trace(trace), "handle "+hook); road != want || root != "" {
			return fmt.Errorf("the trace leads %sto %q, want %s", road, root, want)
		}
		return nil
	})
	for _, s := range traces.Trace(trace) {
		if s.Cluster != "dev" {
			t.Errorf("%s: %s is of cluster %q", s.Service, s.Name, s.Cluster)
		}
	}
	wantInJaeger(t, trace, "")
}

// reviewInTrace runs `portcullis review`, and returns the trace that it names.
func reviewInTrace(t *testing.T, d *dev, env []string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), portcullis, "review", "-f", filepath.Join(d.dir, "pod.json"),
		"--ready-file", filepath.Join(filepath.Dir(d.dir), "ready.json"), "--stage", "validate", "-o", "json")
	command.Env = append(os.Environ(), env...)
	said, _ := command.Output() // the exit code of a denial
	var report struct {
		TraceID string `json:"traceId"`
	}
	if err := json.Unmarshal(said, &report); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	return report.TraceID
}

// ancestry is the spans from the span of that name upwards, and the id of the
// last span's parent, which has not arrived.
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
