package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// sourced is a listing with the name of its source.
type sourced struct {
	name string
	Listing
}

// settlement is what is in force, and what the writers of documents have to know about it.
type settlement struct {
	objects  map[Key]Object
	problems Problems
}

// settle decides what is in force after the listings, given what was before: each valid object that stands there once,
// and the last good version of what is bad, or of what cannot be told because its file cannot be read.
func settle(before map[Key]Object, listings []sourced) settlement {
	c := claims{good: make(map[Key]claim, len(before)), bad: map[Key]bool{}, dark: map[file]bool{}}
	s := settlement{objects: make(map[Key]Object, len(before))}
	for i := range listings {
		s.problems = append(s.problems, c.add(&listings[i])...)
	}
	for key, one := range c.good {
		if len(one.others) == 0 && !c.bad[key] {
			s.objects[key] = one.object()
		} else {
			s.problems = append(s.problems, twice(append(one.others, one.object()))...)
		}
	}
	for key, o := range before {
		if _, settled := s.objects[key]; !settled && c.keeps(o) {
			s.objects[key] = o
			s.problems = append(s.problems, kept(o))
		}
	}
	s.problems = s.problems.sort()
	return s
}

// file is a file of a source; an empty name is the source as a whole.
type file struct{ source, name string }

// claim is the valid documents that say they are one object.
type claim struct {
	document *Object // the last one, as its source has it
	source   string
	others   []Object // usually none
}

// object is the last one.
func (c *claim) object() Object {
	o := *c.document
	o.Source = c.source
	return o
}

// claims are what the documents of all sources say they are.
type claims struct {
	good map[Key]claim
	bad  map[Key]bool  // objects that have a document which is not valid
	dark map[file]bool // files with a document of which it is not known what it is
}

// add counts a listing, and returns its problems with the name of the source.
func (c *claims) add(l *sourced) Problems {
	for i := range l.Objects {
		o := &l.Objects[i]
		one, again := c.good[o.Key]
		if again {
			one.others = append(one.others, one.object())
		}
		one.document, one.source = o, l.name
		c.good[o.Key] = one
	}
	problems := slices.Clone(l.Problems)
	for i := range problems {
		p := &problems[i]
		p.Source = l.name
		switch {
		case p.Code == CodeEmpty:
			c.dark[file{l.name, p.File}] = true
		case p.Severity != match.SeverityError:
		case p.names():
			c.bad[p.Key] = true
		default: // a slip in the kind or name of a document must not lose what it was
			c.dark[file{l.name, p.File}] = true
		}
	}
	return problems
}

// keeps reports whether an object that was in force stays, since what became of it is not valid or cannot be told.
func (c *claims) keeps(o Object) bool {
	_, claimed := c.good[o.Key]
	return claimed || c.bad[o.Key] ||
		c.dark[file{o.Source, o.File}] || c.dark[file{o.Source, ""}]
}

// twice are the problems of documents that are the same object.
func twice(objects []Object) Problems {
	var problems Problems
	for i, o := range objects {
		where := "as another document, which is not valid"
		if len(objects) > 1 {
			other := objects[(i+1)%len(objects)]
			where = "in " + cmp.Or(other.Origin(), other.Source)
			if kind := other.WrittenKind(); kind != o.WrittenKind() {
				where += ", as " + kind
			}
		}
		problems = append(problems, Problem{
			Severity: match.SeverityError, Code: CodeDuplicate, Source: o.Source, File: o.File, Line: o.Line, Kind: o.WrittenKind(), Key: o.Key,
			Message: fmt.Sprintf("the same object stands %s: neither counts, remove one of them", where),
		})
	}
	return problems
}

// kept tells that an old version stays in force.
func kept(o Object) Problem {
	if !o.Saved.IsZero() {
		return Problem{
			Severity: match.SeverityError, Code: CodeKept, Source: o.Source, File: o.File, Kind: o.WrittenKind(), Key: o.Key,
			Message: "in force is the last good version from before the process was started, saved at " + o.Saved.UTC().Format(time.RFC3339) +
				": mend the errors",
		}
	}
	return Problem{
		Severity: match.SeverityWarning, Code: CodeKept, Source: o.Source, File: o.File, Kind: o.WrittenKind(), Key: o.Key,
		Message: "the last good version stays in force until the errors are mended",
	}
}

// revision is the digest of the objects in force: one digest per source, then one over these. It depends on what the
// objects say alone, and on which hooks are pending, so dispatchers that judge by the same configuration name the same
// revision.
func revision(objects map[Key]Object) string {
	bySource, line := map[string]hash.Hash{}, []byte(nil)
	for _, key := range sortedKeys(objects) {
		o := objects[key]
		one := bySource[o.Source]
		if one == nil {
			one = sha256.New()
			bySource[o.Source] = one
		}
		line = append(append(append(append(append(append(line[:0], key.Kind...), '/'), key.Name...), ' '), o.digest...), '\n')
		for _, hook := range o.Pending {
			line = append(append(append(line, "pending "...), hook...), '\n')
		}
		one.Write(line)
	}
	all := sha256.New()
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		fmt.Fprintf(all, "%s %x\n", source, bySource[source].Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)[:revisionBytes])
}

// revisionBytes is how much of the digest a revision keeps: enough that two configurations never share one.
const revisionBytes = 16
