package store

import (
	"context"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// TestALongInspectionDelaysNoChange: configurations come into force meanwhile, and the latest is looked at next.
func TestALongInspectionDelaysNoChange(t *testing.T) {
	m := &memory{name: "m", files: docs("a")}
	var looked []int
	inspect := func(ctx context.Context, _ *match.Snapshot, objects []config.Object) config.Problems {
		looked = append(looked, len(objects))
		select {
		case <-time.After(5 * DefaultMaxAge):
		case <-ctx.Done():
		}
		return nil
	}
	inBubble(t, Options{Sources: []config.Source{m}, Inspect: inspect}, func(t *testing.T, s *Store) {
		for _, files := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
			m.set(docs(files...), nil)
			pass(2 * DefaultMaxAge)
			mustFresh(t, s)
			if c := s.Configuration(); len(c.Objects) != len(files) || !c.Judging {
				t.Errorf("%d objects are in force, want %d", len(c.Objects), len(files))
			}
		}
		pass(4 * 5 * DefaultMaxAge) // it rests
		if len(looked) != 2 || looked[1] != 3 {
			t.Errorf("looked at configurations of %v objects, want 1 and 3", looked)
		}
	})
}
