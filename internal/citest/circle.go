package citest

import (
	"fmt"
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

// raced is how many times fewer Cases there are under the race detector.
const raced = 20

// Cases is Rounds for random cases that are compared one after the other: under the race detector, which finds little there and makes each
// take ten times as long, a twentieth of them, but all in the soak. The environment variable PORTCULLIS_CASES
// sets another number.
func Cases(short, gate, soak int) int {
	n := Rounds(short, gate, soak)
	if Race && !soaks() {
		n = max(1, n/raced)
	}
	return variable("PORTCULLIS_CASES", n)
}

// Seed is the seed of the first of the Cases, and the next one has the next: 1, or the environment variable PORTCULLIS_SEED.
func Seed() uint64 { return variable("PORTCULLIS_SEED", uint64(1)) }

// variable is a number of the environment.
func variable[N int | uint64](name string, otherwise N) N {
	if text := os.Getenv(name); text != "" {
		if _, err := fmt.Sscan(text, &otherwise); err != nil {
			panic(name + ": " + err.Error()) //nolint:forbidigo // in a test, which fails
		}
	}
	return otherwise
}

// Sequential leaves a slow test of one goroutine, or of the bytes or items that a bound lets pass, to runs without the race detector, as `make test`
// is one, and to the soak: the detector finds little there, and such a test takes it ten to thirty times as long. Call it first in the test.
func Sequential(t testing.TB) {
	t.Helper()
	if Race && !soaks() {
		t.Skip("left to runs without the race detector")
	}
}

func soaks() bool { return os.Getenv(SoakVariable) != "" }
