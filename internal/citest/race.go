//go:build race

package citest

// race tells whether the race detector is on.
const race = true
