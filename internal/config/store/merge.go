package store

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
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// sourceListing is a listing with the name of its source.
type sourceListing struct {
	name string
	config.Listing
}

// mergedObjects are the objects that listings put into force, and the problems of their documents.
type mergedObjects struct {
	objects  map[config.Key]config.Object
	problems config.Problems
}

// mergeListings returns each valid object that one document defines. Of objects whose documents are not valid, or are in a file
// that cannot be read, it returns the version in force before. It is pure.
func mergeListings(before map[config.Key]config.Object, listings []sourceListing) mergedObjects {
	d := definitions{good: make(map[config.Key]definition, len(before)), bad: map[config.Key]bool{}, unreadable: map[file]bool{}}
	s := mergedObjects{objects: make(map[config.Key]config.Object, len(before))}
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
	s.problems = s.problems.Sorted()
	return s
}

// file is a file of a source; an empty name is the source as a whole.
type file struct{ source, name string }

// definition are the valid documents that define one object.
type definition struct {
	document *config.Object // the last one, without Source
	source   string
	others   []config.Object // of the other documents; usually none
}

// object is the object of the last document.
func (d *definition) object() config.Object {
	o := *d.document
	o.Source = d.source
	return o
}

// definitions are the objects that the documents of all sources define.
type definitions struct {
	good       map[config.Key]definition
	bad        map[config.Key]bool // objects with a document that is not valid
	unreadable map[file]bool       // files with a document whose kind or name is not known
}

// add counts a listing, and returns its problems with the name of the source.
func (d *definitions) add(l *sourceListing) config.Problems {
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
		case p.Code == config.CodeEmpty:
			d.unreadable[file{l.name, p.File}] = true
		case p.Severity != match.SeverityError:
		case p.NamesObject():
			d.bad[p.Key] = true
		default: // a slip in the kind or name of a document must not lose its earlier object
			d.unreadable[file{l.name, p.File}] = true
		}
	}
	return problems
}

// keeps reports whether an object stays in force that has no valid definition now.
func (d *definitions) keeps(o config.Object) bool {
	_, defined := d.good[o.Key]
	return defined || d.bad[o.Key] ||
		d.unreadable[file{o.Source, o.File}] || d.unreadable[file{o.Source, ""}]
}

// definedTwice are the problems of documents that are the same object.
func definedTwice(objects []config.Object) config.Problems {
	var problems config.Problems
	for i, o := range objects {
		where := "as another document, which is not valid"
		if len(objects) > 1 {
			other := objects[(i+1)%len(objects)]
			where = "in " + cmp.Or(other.Origin(), other.Source)
			if kind := other.WrittenKind(); kind != o.WrittenKind() {
				where += ", as " + kind
			}
		}
		problems = append(problems, o.Problem(match.SeverityError, config.CodeDuplicate, "",
			fmt.Sprintf("the same object stands %s: neither counts, remove one of them", where)))
	}
	return problems
}

// keptLastGood is the problem of an object whose last good version stays in force.
func keptLastGood(o config.Object) config.Problem {
	p := o.Problem(match.SeverityWarning, config.CodeKept, "", "the last good version stays in force until the errors are mended")
	p.Line = 0 // the document there now is another one
	if !o.Saved.IsZero() {
		p.Severity = match.SeverityError
		p.Message = "in force is the last good version from before the process was started, saved at " + o.Saved.UTC().Format(time.RFC3339) + ": mend the errors"
	}
	return p
}

// revision is the digest of the objects in force: one digest per source, then one over these. It depends on the meaning of
// the objects alone, and on which hooks are pending, so dispatchers that judge by the same configuration name the same
// revision.
func revision(objects map[config.Key]config.Object) string {
	bySource, line := map[string]hash.Hash{}, []byte(nil)
	for _, key := range config.SortedKeys(objects) {
		o := objects[key]
		one := bySource[o.Source]
		if one == nil {
			one = sha256.New()
			bySource[o.Source] = one
		}
		line = append(append(append(append(append(append(line[:0], key.Kind...), '/'), key.Name...), ' '), o.Digest...), '\n')
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

// bounded are objects to come into force that cost no more than a limit together, given the objects in force. A changed
// object that does not fit any more keeps its version in force, if it has one: the first ones in the order of keys fit.
func bounded(before, after map[config.Key]config.Object, limit config.Cost) (map[config.Key]config.Object, config.Problems) {
	total := config.Cost{}
	for _, o := range after {
		total = total.Plus(o.Cost())
	}
	if total.Over(limit) == "" {
		return after, nil
	}
	all := total
	fitting, total := make(map[config.Key]config.Object, len(after)), config.Cost{}
	var changed []config.Key
	for _, key := range config.SortedKeys(after) {
		o := after[key]
		old, ok := before[key]
		if old.Digest != o.Digest {
			changed = append(changed, key)
			o = old
		}
		if ok {
			fitting[key] = o
			total = total.Plus(o.Cost())
		}
	}
	var problems config.Problems
	for _, key := range changed {
		o, old := after[key], before[key]
		next := total.Minus(old.Cost()).Plus(o.Cost())
		if next.Raised(old.Cost(), o.Cost()).Over(limit) == "" {
			fitting[key], total = o, next
			continue
		}
		problems = append(problems, o.Problem(match.SeverityError, config.CodeLimit, "", "all objects together have "+all.Over(limit)+": remove some"))
		if _, ok := before[key]; ok {
			problems = append(problems, keptLastGood(old))
		}
	}
	return fitting, problems
}
