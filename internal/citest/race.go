//go:build race

package citest

// Race tells whether the race detector is on.
const Race = true
