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

// sourceListing is a listing with the name of its source.
type sourceListing struct {
	name string
	Listing
}

// mergedObjects are the objects that listings put into force, and the problems of their documents.
type mergedObjects struct {
	objects  map[Key]Object
	problems Problems
}

// mergeListings returns each valid object that one document defines. Of objects whose documents are not valid, or are in a file
// that cannot be read, it returns the version in force before. It is pure.
func mergeListings(before map[Key]Object, listings []sourceListing) mergedObjects {
	d := definitions{good: make(map[Key]definition, len(before)), bad: map[Key]bool{}, unreadable: map[file]bool{}}
	s := mergedObjects{objects: make(map[Key]Object, len(before))}
	for i := range listings {
		s.problems = append(s.problems, d.add(&listings[i])...)
	}
	for key, one := range d.good {
		if len(one.others) == 0 && !d.bad[key] {
			s.objects[key] = one.object()
		} else {
			s.problems = append(s.problems, definedTwice(append(one.others, one.object()))...)
		}
	}
	for key, o := range before {
		if _, merged := s.objects[key]; !merged && d.keeps(o) {
			s.objects[key] = o
			s.problems = append(s.problems, keptLastGood(o))
		}
	}
	s.problems = s.problems.sort()
	return s
}

// file is a file of a source; an empty name is the source as a whole.
type file struct{ source, name string }

// definition are the valid documents that define one object.
type definition struct {
	document *Object // the last one, without Source
	source   string
	others   []Object // of the other documents; usually none
}

// object is the object of the last document.
func (d *definition) object() Object {
	o := *d.document
	o.Source = d.source
	return o
}

// definitions are the objects that the documents of all sources define.
type definitions struct {
	good       map[Key]definition
	bad        map[Key]bool  // objects with a document that is not valid
	unreadable map[file]bool // files with a document whose kind or name is not known
}

// add counts a listing, and returns its problems with the name of the source.
func (d *definitions) add(l *sourceListing) Problems {
	for i := range l.Objects {
		o := &l.Objects[i]
		one, again := d.good[o.Key]
		if again {
			one.others = append(one.others, one.object())
		}
		one.document, one.source = o, l.name
		d.good[o.Key] = one
	}
	problems := slices.Clone(l.Problems)
	for i := range problems {
		p := &problems[i]
		p.Source = l.name
		switch {
		case p.Code == CodeEmpty:
			d.unreadable[file{l.name, p.File}] = true
		case p.Severity != match.SeverityError:
		case p.names():
			d.bad[p.Key] = true
		default: // a slip in the kind or name of a document must not lose what it was
			d.unreadable[file{l.name, p.File}] = true
		}
	}
	return problems
}

// keeps reports whether an object stays in force that has no valid definition now.
func (d *definitions) keeps(o Object) bool {
	_, defined := d.good[o.Key]
	return defined || d.bad[o.Key] ||
		d.unreadable[file{o.Source, o.File}] || d.unreadable[file{o.Source, ""}]
}

// definedTwice are the problems of documents that are the same object.
func definedTwice(objects []Object) Problems {
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

// keptLastGood is the problem of an object whose last good version stays in force.
func keptLastGood(o Object) Problem {
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
