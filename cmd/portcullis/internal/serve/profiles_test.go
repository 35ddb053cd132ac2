package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/pflag"
)

func TestProfilesAreServedByAFlag(t *testing.T) {
	for args, want := range map[string]int{"": http.StatusNotFound, "--pprof": http.StatusOK} {
		a, _ := sampleApp(t, func(_ *dev, c *serveConfig) {
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			var given serveConfig
			given.bind(flags)
			if err := flags.Parse([]string{args}); err != nil {
				t.Fatal(err)
			}
			c.profiles = given.profiles
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/heap", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8445"
		w := httptest.NewRecorder()
		a.admin.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("with %q: %d, want %d", args, w.Code, want)
		}
	}
}
