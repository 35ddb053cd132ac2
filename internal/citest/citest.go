// Package citest ends tests that cannot run where they are, or that belong to a larger circle of tests than the running circle. It
// knows nothing of their needs.
package citest

import (
	"os"
	"testing"
)

// Lacks ends a test: as failed where CI is set, so that no run that decides is green without it, and as skipped elsewhere. The text
// names the thing that is missing. Call it from the goroutine of the test.
func Lacks(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s, and this test has to run in CI", what)
	}
	t.Skip(what)
}
