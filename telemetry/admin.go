package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// maxScrapes bounds the scrapes that run at the same time; more are answered 503. Two Prometheus replicas and a
	// person with curl need three.
	maxScrapes = 4
	// scrapeTimeout bounds one scrape: Prometheus itself gives up after 10 s by default.
	scrapeTimeout = 10 * time.Second
)

// AdminOptions is what the admin handler needs.
type AdminOptions struct {
	// Gatherer is what /metrics shows; nil shows nothing, with 404.
	Gatherer prometheus.Gatherer
	// Ready says what is missing before the process should be sent requests, one reason each; empty means ready. It is
	// called for each probe, from any goroutine, and must not block. nil is always ready.
	Ready func() []string
	// Notes says what has to be known of a process that is ready, one sentence each, behind "ready". As Ready; nil says
	// nothing.
	Notes func() []string
	// Logger is told which metrics cannot be gathered; nil logs nothing.
	Logger *slog.Logger
}

// Admin is the handler of the admin port: /healthz answers while the process runs, /readyz says 503 and why while it
// should not be sent requests, /metrics is for Prometheus, with exemplars when it asks for OpenMetrics.
func Admin(o AdminOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "/healthz\n/readyz\n/metrics\n") })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", o.readyz)
	if o.Gatherer != nil {
		mux.Handle("GET /metrics", o.metrics())
	}
	return mux
}

func (o AdminOptions) readyz(w http.ResponseWriter, _ *http.Request) {
	var missing []string
	if o.Ready != nil {
		missing = o.Ready()
	}
	if len(missing) == 0 {
		ready := []string{"ready"}
		if o.Notes != nil {
			ready = append(ready, o.Notes()...)
		}
		plain(w, http.StatusOK, strings.Join(ready, "\n")+"\n")
		return
	}
	plain(w, http.StatusServiceUnavailable, strings.Join(missing, "\n")+"\n")
}

func (o AdminOptions) metrics() http.Handler {
	options := promhttp.HandlerOpts{
		// One broken collector must not hide all the others.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
	}
	if o.Logger != nil {
		options.ErrorLog = gatherErrors{o.Logger}
	}
	return promhttp.HandlerFor(o.Gatherer, options)
}

// gatherErrors is a logger as promhttp wants it.
type gatherErrors struct{ log *slog.Logger }

// Println logs one error of a scrape.
func (g gatherErrors) Println(v ...any) {
	g.log.Warn("metrics cannot be gathered as a whole", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}

// plain answers with a text.
func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// The prober may have gone; there is nobody to tell.
	_, _ = io.WriteString(w, text)
}
