package keeper

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsersAreToldOfEntriesWhoseConditionsAreDropped: each dispatcher reports it as long as it lasts, the leader or not, and logs it once.
func TestUsersAreToldOfEntriesWhoseConditionsAreDropped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, string(authority(t).CertPEM))
	wildcard := strings.NewReplacer("FILE", file, `apiGroups: [""]`, `apiGroups: ["*"]`, "resources: [pods]", `resources: ["*"]`).Replace(judged)
	for name, documents := range map[string]string{"conditions": wildcard, "no conditions": strings.Replace(judged, "FILE", file, 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.older = true
				logs := map[string]*bytes.Buffer{"one": {}, "two": {}}
				keepers := map[string]*Keeper{}
				for _, id := range []string{"one", "two"} {
					keepers[id] = server.keepsLogged(t, id, documents, slog.New(slog.NewTextHandler(logs[id], nil)))
					passes(takeover)
				}
				passes(time.Hour)
				dropped := name == "conditions"
				for id, k := range keepers {
					s := k.States()[0]
					if s.Err != nil || !s.InSync || (len(s.Wider) == 1) != dropped {
						t.Fatalf("%s: state %+v", id, s)
					}
					if n := strings.Count(logs[id].String(), "wider than planned"); (n == 1) != dropped {
						t.Errorf("%s logs it %d times", id, n)
					}
					if dropped && !strings.Contains(s.Wider[0], "validatingwebhookconfiguration/portcullis: the API server has dropped the matchConditions of") {
						t.Errorf("%s: %q", id, s.Wider)
					}
				}
				server.mu.Lock()
				server.older = false // the cluster is upgraded
				server.mu.Unlock()
				server.patch(t, "validating", func(_, annotations map[string]any) { annotations["an"] = "upgrade" })
				passes(takeover)
				for id, k := range keepers {
					if s := k.States()[0]; len(s.Wider) > 0 {
						t.Errorf("%s after the upgrade: %q", id, s.Wider)
					}
				}
			})
		})
	}
}
