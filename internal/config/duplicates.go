package config

import "github.com/portcullis-mesh/portcullis/dispatcher/match"

// Duplicates reports objects that stand in several documents: a dispatcher would use none of them.
func Duplicates(objects []Object) Problems {
	var problems Problems
	seen := map[Key]*Object{}
	for i := range objects {
		o := &objects[i]
		if first, ok := seen[o.Key]; ok {
			problems = append(problems, Problem{
				Severity: match.SeverityError, Code: CodeDuplicate, File: o.File, Line: o.Line, Kind: o.WrittenKind(), Key: o.Key,
				Message: "it is in " + first.Origin() + " too: remove either",
			})
			continue
		}
		seen[o.Key] = o
	}
	return problems
}
