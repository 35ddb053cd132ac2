package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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

// index is the answer of the root.
const index = "/livez\n/healthz\n/readyz\n/metrics\n\nThis port asks for no identity. Run `portcullis console` to see the mesh in a browser.\n"

// ProfilesUsage describes the flag of AdminOptions.Profiles.
const ProfilesUsage = "serve /debug/pprof on --listen-admin, to callers on this machine (kubectl port-forward is one)"

// AdminOptions configures the admin handler.
type AdminOptions struct {
	// Gatherer supplies /metrics; with nil that path answers 404.
	Gatherer prometheus.Gatherer
	// Ready returns why the process should not receive requests yet, one reason each; empty means ready. Each probe
	// calls it, from any goroutine; it must not block. nil is always ready.
	Ready func() []string
	// Notes returns sentences that /readyz prints after "ready". It is called as Ready is; nil adds nothing.
	Notes func() []string
	// Profiles serves /debug/pprof to callers on this machine.
	Profiles bool
	// Logger receives the metrics that cannot be gathered, and the errors of the server; nil logs nothing.
	Logger *slog.Logger
}

// NewAdminServer returns a server for the admin port.
func NewAdminServer(o AdminOptions) *http.Server {
	return &http.Server{Handler: Admin(o), ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)}
}

// Admin is the handler of the admin port. /livez and /healthz answer while the process runs. /readyz answers 503 with the reasons
// while the process should not receive requests. /metrics is for Prometheus, with exemplars if it asks for OpenMetrics.
func Admin(o AdminOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, index) })
	for _, path := range []string{"/livez", "/healthz"} { // Kubernetes' new name, and the old one
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	}
	mux.HandleFunc("GET /readyz", o.readyz)
	if o.Gatherer != nil {
		mux.Handle("GET /metrics", o.metrics())
	}
	if o.Profiles {
		mux.Handle("GET "+profilesPath, localOnly(profiles()))
	}
	return mux
}

// ServeAdmin serves on a listener until the server is closed, which is no error.
func ServeAdmin(server *http.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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

// gatherErrors implements promhttp.Logger.
type gatherErrors struct{ log *slog.Logger }

func (g gatherErrors) Println(v ...any) {
	g.log.Warn("metrics cannot be gathered as a whole", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error means that the prober has gone.
	_, _ = io.WriteString(w, text)
}
