package analysis

import (
	"maps"
	"slices"
)

// Codes are the codes of all causes.
func Codes() []Code { return slices.Sorted(maps.Keys(help)) }
