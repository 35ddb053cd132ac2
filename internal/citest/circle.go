package citest

import (
	"os"
	"testing"
)

// SoakVariable is the environment variable that `make soak` sets: tests of every circle run, with their largest counts.
const SoakVariable = "PORTCULLIS_SOAK"

// Gate leaves a test to `.ci/run` and `make soak`: it is skipped under -short, as in `make test`. The text says why, for example
// "waits for two leader elections: 20 s". Call it first in the test.
func Gate(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to the gate: " + why)
	}
}

// Soak leaves a test to `make soak`: it is skipped elsewhere. The text says why. Call it first in the test.
func Soak(t testing.TB, why string) {
	t.Helper()
	if !soaks() {
		t.Skip("left to the soak: " + why)
	}
}

// Rounds is how often a test repeats a random case: short under -short, as in `make test`; soak in `make soak`; gate elsewhere. Call it
// from a test, once flags are parsed.
func Rounds(short, gate, soak int) int {
	switch {
	case soaks():
		return soak
	case testing.Short():
		return short
	default:
		return gate
	}
}

func soaks() bool { return os.Getenv(SoakVariable) != "" }
