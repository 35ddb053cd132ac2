package lint

import "github.com/portcullis-mesh/portcullis/dispatcher/match"

// EntryDangersWithin is EntryDangers with another limit than MaxEntryHooks.
func EntryDangersWithin(s *match.Snapshot, clusters []string, about func(*match.Hook) bool, most int) []match.Finding {
	return entryDangers(s, clusters, about, most)
}
