package telemetry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// askProfiles asks an admin handler for a path as a caller at an address, by a name.
func askProfiles(o AdminOptions, remote, host, path string) (code int, body string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = remote, host
	w := httptest.NewRecorder()
	Admin(o).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestProfilesAreForCallersOnThisMachine(t *testing.T) {
	on := AdminOptions{Profiles: true}
	for name, test := range map[string]struct {
		o                  AdminOptions
		remote, host, path string
		want               int
	}{
		"a caller here":                               {on, "127.0.0.1:4711", "127.0.0.1:8445", "/debug/pprof/goroutine?debug=1", 200},
		"a caller here by IPv6":                       {on, "[::1]:4711", "[::1]:8445", "/debug/pprof/heap", 200},
		"an address of IPv4 in IPv6":                  {on, "[::ffff:127.0.0.1]:4711", "localhost:8445", "/debug/pprof/", 200},
		"a name without a port":                       {on, "127.0.0.1:4711", "localhost", "/debug/pprof/", 200},
		"a caller on another machine":                 {on, "10.0.0.7:4711", "127.0.0.1:8445", "/debug/pprof/heap", 403},
		"a page of a browser here, by its own name":   {on, "127.0.0.1:4711", "evil.example.com:8445", "/debug/pprof/heap", 403},
		"a name that begins like one of this machine": {on, "127.0.0.1:4711", "localhost.example.com", "/debug/pprof/heap", 403},
		"the command line, which may have secrets":    {on, "127.0.0.1:4711", "127.0.0.1:8445", "/debug/pprof/cmdline", 404},
		"without the option":                          {AdminOptions{}, "127.0.0.1:4711", "127.0.0.1:8445", "/debug/pprof/heap", 404},
	} {
		if code, body := askProfiles(test.o, test.remote, test.host, test.path); code != test.want {
			t.Errorf("%s: %d %q, want %d", name, code, body, test.want)
		}
	}
}

func TestAProfileIsReadOverASocket(t *testing.T) {
	server := httptest.NewServer(Admin(AdminOptions{Profiles: true}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.HasPrefix(string(body), "goroutine profile: total ") {
		t.Errorf("%d %.80q, error %v", answer.StatusCode, body, err)
	}
}
