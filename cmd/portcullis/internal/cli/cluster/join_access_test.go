package cluster

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// TestAKubeconfigOfAnEarlierJoinIsNotTakenForThisOne: dispatchers would show the cluster a token that it does not know any more.
func TestAKubeconfigOfAnEarlierJoinIsNotTakenForThisOne(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if shown := r.Header.Get("Authorization"); shown != "Bearer second" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(`{}`))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "operator"}
	of := func(token string) string {
		text, err := kubeconfigOf("prod-1", config, token)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, tt := range map[string]struct{ text, wrong string }{
		"the token of now":                      {of("now"), ""},
		"another address, by an edit":           {strings.Replace(of("now"), "127.0.0.1", "10.0.0.1", 1), ""},
		"a second token of the service account": {of("second"), ""},
		"credentials of the operator's choice":  {strings.Replace(of("now"), "token: now", "tokenFile: /var/run/token", 1), ""},
		"the token of an earlier join":          {of("earlier"), "does not accept the token"},
		"no context":                            {strings.Replace(of("now"), "current-context: prod-1", "", 1), "has no context"},
		"no kubeconfig":                         {"apiVersion: [", "cannot be read"},
		"empty":                                 {"", "has no context"},
	} {
		file := clitest.Write(t, "access", tt.text)
		err := checkAccessFile(t.Context(), file, config, "now")
		if (err != nil) != (tt.wrong != "") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			continue
		}
		for _, want := range []string{tt.wrong, file, "move it away"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
	}
	if err := checkAccessFile(t.Context(), filepath.Join(t.TempDir(), "none"), config, "now"); err == nil {
		t.Error("a file that is not there is accepted")
	}
	server.Close()
	if err := checkAccessFile(t.Context(), clitest.Write(t, "access", of("earlier")), config, "now"); err == nil || strings.Contains(err.Error(), "move it away") {
		t.Errorf("a cluster that does not answer: %v", err)
	}
}
