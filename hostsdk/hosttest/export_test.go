package hosttest

import (
	"encoding/json"
	"testing"
)

// Patched is an object with a patch applied.
var Patched = patched

// Compare plays one case and returns its faults.
func Compare(t *testing.T, d *Dispatcher, text string) []string {
	t.Helper()
	var c testCase
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c.Expect.compare(d.Review(t.Context(), c.hook(d.Session), c.request()))
}
