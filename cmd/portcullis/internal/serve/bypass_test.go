package serve

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

func TestABreakGlassIsOnForATimeAndSeen(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	admin := func(path string) string {
		w := httptest.NewRecorder()
		r.app.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Body.String()
	}
	if got := r.run(configcli.NewApply(), r.documents(), "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	r.host(func() error { return nil })
	r.until("InRotation True", "Effective True", "Served True")
	if got := r.review(); got.Code != cli.ExitDenied {
		t.Fatalf("the hook does not deny: %s%s", got.Out, got.Notes)
	}

	// The Cluster of the samples stands in a file.
	on := []string{"on", "--cluster", "dev", "--for", "30m", "--reason", "INC-42"}
	r.run(configcli.NewBypass(), "", on...).Fails(t, "which the mesh does not write: put spec.bypass.breakGlass there")
	r.moveClusterToStore()
	bypass := func(want string, args ...string) {
		t.Helper()
		if got := r.run(configcli.NewBypass(), "", args...); got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("no %q in %d %s%s", want, got.Code, got.Out, got.Notes)
		}
	}
	bypass("no break-glass is on for cluster dev", "off", "--cluster", "dev")

	bypass("no hook is called for cluster dev until ", on...)
	got := r.review()
	for _, want := range []string{`"bypass": "break-glass: INC-42"`, "no admission hook is called for cluster dev until"} {
		if got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("no %s in %d %s%s", want, got.Code, got.Out, got.Notes)
		}
	}
	for path, want := range map[string]string{
		"/readyz": "break-glass: no hook is called for cluster dev until", "/metrics": `portcullis_break_glass_until_timestamp_seconds{cluster="dev"}`,
	} {
		if text := admin(path); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if text := admin("/metrics"); !strings.Contains(text, `portcullis_review_bypassed_total{cluster="dev",reason="break-glass"} 1`) {
		t.Errorf("the review is not counted: %s", text)
	}

	bypass("are called again", "off", "--cluster", "dev")
	if got := r.review(); got.Code != cli.ExitDenied {
		t.Errorf("the hook is not called again: %s%s", got.Out, got.Notes)
	}
	if strings.Contains(admin("/metrics"), "portcullis_break_glass_until_timestamp_seconds{") {
		t.Error("the metric is there without a break-glass")
	}
}

// moveClusterToStore removes the Cluster from the files, and applies it.
func (r *rotated) moveClusterToStore() {
	r.Helper()
	file := r.dev.path("config/mesh.yaml")
	all, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	var document string
	documents := strings.Split(string(all)+"\n---\n# The Cluster is in the store.\n", "\n---\n") // an empty file counts as a file that is being written
	documents = slices.DeleteFunc(documents, func(d string) bool {
		found := strings.Contains(d, "kind: Cluster")
		if found {
			document = d
		}
		return found
	})
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		r.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := r.run(configcli.NewApply(), document, "-f", "-", "--wait")
		if got.Code == 0 {
			return
		}
		if time.Now().After(deadline) { // the files are still the source until the removal is seen
			r.Fatal(got.Notes)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestBypassRefusesNonsense(t *testing.T) {
	for want, args := range map[string][]string{
		"--for: say how long it is on, at most 24h0m0s": {"on", "--cluster", "c", "--reason", "r"},
		"at most 24h0m0s":      {"on", "--cluster", "c", "--reason", "r", "--for", "24h1s"},
		"--reason is missing":  {"on", "--cluster", "c", "--for", "1h"},
		"--cluster is missing": {"off"},
	} {
		clitest.Execute(t, configcli.NewBypass(), nil, args...).Fails(t, want)
	}
}
