package etcdstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// TestAnEtcdWithItsOwnLimitsRefusesWhatIsTooLarge: nothing is changed then, and the error says which limit it was.
func TestAnEtcdWithItsOwnLimitsRefusesWhatIsTooLarge(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	const (
		operations = 128             // --max-txn-ops unless told otherwise
		bytes      = 3 << 19         // --max-request-bytes
		beside     = 2               // the generation and the history
		framing    = bytes/100 + 100 // of the objects in a request
	)
	c := etcdtest.Start(t)
	store := c.Store()
	many := func(n int) (out []*etcdstore.Record) {
		for i := range n {
			out = append(out, record(fmt.Sprint("r", i), 1))
		}
		return out
	}
	large := func(size int) []*etcdstore.Record {
		r := record("large", 1)
		r.Manifest = json.RawMessage(`{"kind":"HookRoute","metadata":{"name":"` + strings.Repeat("x", size) + `"}}`)
		return []*etcdstore.Record{r}
	}
	for _, tc := range []struct {
		name    string
		objects []*etcdstore.Record
		says    string // empty: it is committed
	}{
		{"as many operations as there may be", many(operations - beside), ""},
		{"one more", many(operations - beside + 1), "--max-txn-ops"},
		{"almost as many bytes as there may be", large(bytes - framing), ""},
		{"some more", large(bytes + 1), "--max-request-bytes"},
		{"more than etcd's client sends unless told otherwise", large(3 << 20), "--max-request-bytes"},
		{"more than an embedded etcd takes", large(etcdstore.MaxRequestBytes + 1), "--max-request-bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, err := store.Read(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.Commit(t.Context(), before, put(tc.objects...))
			after, readErr := store.Read(t.Context(), before)
			switch {
			case readErr != nil:
				t.Fatal(readErr)
			case tc.says == "" && (err != nil || after == before):
				t.Errorf("not committed: %v", err)
			case tc.says != "" && (!errors.Is(err, etcdstore.ErrTooLarge) || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("error %.300v, want %s", err, tc.says)
			case tc.says != "" && after != before:
				t.Error("it was refused, and something has changed")
			}
		})
	}
}
