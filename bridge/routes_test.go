package bridge

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A path is looked at before its caller: a served path asks a caller without an identity for one.
func TestRoutes(t *testing.T) {
	const served = http.StatusUnauthorized
	b := newBridge(t, testOptions(allow))
	status := func(method, path string) int {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(reviewOf("u1", 0))))
		response := w.Result()
		defer response.Body.Close()
		got := understand(t, response, w.Body.Bytes())
		if want := got.status == http.StatusMethodNotAllowed; (response.Header.Get("Allow") == http.MethodPost) != want {
			t.Errorf("%s %s: status %d with Allow %q", method, path, got.status, response.Header.Get("Allow"))
		}
		return got.status
	}
	for _, stage := range []string{"mutate", "validate", "reinvoke", "admit", "enforce"} {
		for tail, want := range map[string]int{
			"": served, "/a": served, "/a/": served, "/a/10.": served, "/a%2F10.": served, "?timeout=1s": served,
			"/": http.StatusNotFound, "//10.": http.StatusNotFound, "/a/b/c": http.StatusNotFound, "s": http.StatusNotFound, ":x": http.StatusNotFound,
		} {
			path := "/v1/clusters/prod-1/" + stage + tail
			if got := status(http.MethodPost, path); got != want {
				t.Errorf("POST %s: status %d, want %d", path, got, want)
			}
		}
	}
	for path, want := range map[string]int{
		"/v1/clusters/prod-1/validate": http.StatusMethodNotAllowed, "/v1/clusters/prod-1/mutate/a/10.": http.StatusMethodNotAllowed,
		"/v1/clusters//enforce/a": http.StatusMethodNotAllowed, "/v1/clusters/prod-1/validate/": http.StatusMethodNotAllowed,
		"/v1/clusters/prod-1/validate/a/b/c": http.StatusNotFound, "/v1/clusters/prod-1/approve": http.StatusNotFound, "/": http.StatusNotFound,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodOptions, "PURGE"} {
			if got := status(method, path); got != want {
				t.Errorf("%s %s: status %d, want %d", method, path, got, want)
			}
		}
	}
}

// A request that is refused for its path is counted without a stage, and a request to a stage with it.
func TestRefusedPathsAreCounted(t *testing.T) {
	b := newBridge(t, testOptions(allow))
	for _, path := range []string{"/v1/clusters/prod-1/approve", "/v1/clusters//validate", enforcePath + "/"} {
		b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
	}
	var got []float64
	for _, labels := range [][]string{{edgeJSON, stageNone}, {edgeJSON, "validate"}, {edgeEnforce, "validate"}} {
		got = append(got, testutil.ToFloat64(b.instruments.requests.WithLabelValues("", labels[0], labels[1], "refused", "404")))
	}
	if !slices.Equal(got, []float64{1, 1, 1}) {
		t.Errorf("counted %v, want one of each", got)
	}
}
