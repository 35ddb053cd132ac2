package telemetry_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// ask sends one request to a handler.
func ask(t *testing.T, h http.Handler, method, path string, header http.Header) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestAdmin(t *testing.T) {
	ready := func(missing ...string) func() []string { return func() []string { return missing } }
	tests := map[string]struct {
		options      telemetry.AdminOptions
		method, path string
		code         int
		body         string
	}{
		"a live process is healthy":                  {path: "/healthz", code: 200, body: "ok\n"},
		"a live process is live":                     {path: "/livez", code: 200, body: "ok\n"},
		"a live process is healthy while not ready":  {options: telemetry.AdminOptions{Ready: ready("no host")}, path: "/healthz", code: 200, body: "ok\n"},
		"nothing missing is ready":                   {options: telemetry.AdminOptions{Ready: ready()}, path: "/readyz", code: 200, body: "ready\n"},
		"what has to be known is said behind it":     {options: telemetry.AdminOptions{Ready: ready(), Notes: ready("by a permit")}, path: "/readyz", code: 200, body: "ready\nby a permit\n"},
		"a process without conditions is ready":      {path: "/readyz", code: 200, body: "ready\n"},
		"what is missing is said, one reason a line": {options: telemetry.AdminOptions{Ready: ready("no configuration", "stopping")}, path: "/readyz", code: 503, body: "no configuration\nstopping\n"},
		"probes may ask by HEAD":                     {method: "HEAD", path: "/healthz", code: 200, body: "ok\n"},
		"nothing is changed by POST":                 {method: "POST", path: "/readyz", code: 405, body: "Method Not Allowed\n"},
		"the root names the pages":                   {path: "/", code: 200, body: "/livez\n/healthz\n/readyz\n/metrics\n\nThis port asks for no identity. Run `portcullis console` to see the mesh in a browser.\n"},
		"other paths do not exist":                   {path: "/debug", code: 404, body: "404 page not found\n"},
		"there are no metrics without a registry":    {path: "/metrics", code: 404, body: "404 page not found\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			method := tt.method
			if method == "" {
				method = http.MethodGet
			}
			code, body := ask(t, telemetry.Admin(tt.options), method, tt.path, nil)
			if code != tt.code || body != tt.body {
				t.Errorf("%d %q, want %d %q", code, body, tt.code, tt.body)
			}
		})
	}
}

func TestMetricsCarryExemplarsForThoseWhoAskForOpenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portcullis_review_duration_seconds", Help: "Time.", Buckets: []float64{1}})
	registry.MustRegister(histogram)
	histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(0.5, prometheus.Labels{"trace_id": "4bf92f3577b34da6"})
	admin := telemetry.Admin(telemetry.AdminOptions{Gatherer: registry})

	code, body := ask(t, admin, http.MethodGet, "/metrics", http.Header{"Accept": {"application/openmetrics-text; version=1.0.0"}})
	if want := `# {trace_id="4bf92f3577b34da6"} 0.5`; code != 200 || !strings.Contains(body, want) || !strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("OpenMetrics: %d, want %s in:\n%s", code, want, body)
	}
	code, body = ask(t, admin, http.MethodGet, "/metrics", nil)
	if want := `portcullis_review_duration_seconds_bucket{le="1"} 1`; code != 200 || !strings.Contains(body, want) || strings.Contains(body, "trace_id") {
		t.Errorf("text: %d, want %s and no exemplar in:\n%s", code, want, body)
	}
}

// broken is a collector whose metrics cannot be gathered.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(c chan<- *prometheus.Desc) { c <- b.desc }
func (b broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(b.desc, errors.New("sensor lost"))
}

func TestABrokenMetricIsLoggedAndHidesNoOther(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "good_total", Help: "Good."})
	registry.MustRegister(counter, broken{prometheus.NewDesc("bad", "Bad.", nil, nil)})
	var log bytes.Buffer
	admin := telemetry.Admin(telemetry.AdminOptions{Gatherer: registry, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	code, body := ask(t, admin, http.MethodGet, "/metrics", nil)
	if code != 200 || !strings.Contains(body, "good_total 0") {
		t.Errorf("%d:\n%s", code, body)
	}
	if !strings.Contains(log.String(), "sensor lost") {
		t.Errorf("the log does not say what is broken:\n%s", &log)
	}
}
