package keeper

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
)

// TestEntriesThatAnOperatorOfTheClusterHasEmptiedStayEmpty: no dispatcher writes them before the annotation is gone from both objects,
// neither the leader nor another one, and each says why.
func TestEntriesThatAnOperatorOfTheClusterHasEmptiedStayEmpty(t *testing.T) {
	authorities := string(authority(t).CertPEM)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, authorities)
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		one := server.keeps(t, "one", file)
		passes(takeover)
		two := server.keeps(t, "two", file)
		passes(takeover)

		server.patch(t, "validating", func(object, annotations map[string]any) {
			delete(object, "webhooks")
			annotations[registrar.BreakGlassAnnotation] = "INC-42"
		})
		passes(time.Hour)
		for name, k := range map[string]*Keeper{"one": one, "two": two} {
			if s := k.States()[0]; !errors.Is(s.Err, registrar.ErrBreakGlass) || s.InSync || server.bundles(t) != "" {
				t.Errorf("%s: state %+v, entries %q", name, s, server.bundles(t))
			}
		}
		if again, generation := server.writtenAgain(t); !again {
			t.Errorf("generation %d was not written again: an API server may have missed that the entries are empty", generation)
		}

		server.patch(t, "validating", func(_, annotations map[string]any) { delete(annotations, registrar.BreakGlassAnnotation) })
		passes(takeover)
		if s := one.States()[0]; s.Err != nil || !s.InSync || server.bundles(t) != authorities {
			t.Errorf("after the break-glass: state %+v, entries %q", s, server.bundles(t))
		}
	})
}

// patch changes the entries of a kind as a user of kubectl does.
func (s *apiServer) patch(t *testing.T, kind string, change func(object, annotations map[string]any)) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/apis/admissionregistration.k8s.io/v1/" + kind + "webhookconfigurations/portcullis"
	now, next := s.objects[path], map[string]any{}
	data, err := json.Marshal(now)
	if err == nil {
		err = json.Unmarshal(data, &next)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(next, next["metadata"].(map[string]any)["annotations"].(map[string]any))
	s.store(path, now, next)
}
