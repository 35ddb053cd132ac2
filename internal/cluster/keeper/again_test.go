package keeper

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// TestEntriesAreWrittenOnceMoreAfterAChange: an API server may have missed the change, and then calls hooks by the entries of before.
func TestEntriesAreWrittenOnceMoreAfterAChange(t *testing.T) {
	first, second := string(authority(t).CertPEM), string(authority(t).CertPEM)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, first)
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		k := server.keeps(t, "one", file)
		for _, text := range []string{first, second} {
			write(t, file, text)
			passes(takeover) // it may be 11 s until it leads
			if server.bundles(t) != text {
				t.Fatalf("the entries are not those of the file: %+v", k.States())
			}
			passes(touch.Delay + 2*time.Second)
			if again, generation := server.writtenAgain(t); !again {
				t.Errorf("generation %d was not written again", generation)
			}
		}
		// Two objects are made, of which one trusts the authorities, and that one is changed.
		if server.stored != 2*(2+1) {
			t.Errorf("%d writes, want two for each change", server.stored)
		}
		passes(time.Hour)
		server.keeps(t, "two", file) // knows nothing of the changes
		passes(time.Hour)
		if server.stored != 6 {
			t.Errorf("%d writes without a change", server.stored-6)
		}
	})
}
