package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// forge makes editions of listings for a Store. It belongs to the goroutine of Run, away from the road of reviews.
type forge struct {
	*Store

	listings []sourced // by source; one that was never listed has a zero Started
	seen     []string  // the revisions of the listings that were settled last

	objects  map[Key]Object // in force
	snapshot *match.Snapshot
	settled  *settled
	valid    bool     // whether snapshot is what seen makes: false while that cannot be compiled
	compiled Problems // of the snapshot
	clusters []string

	inspections inspections
}

func newForge(s *Store) *forge {
	return &forge{Store: s, listings: make([]sourced, len(s.opts.Sources)), inspections: make(inspections, 1)}
}

// take puts the result of a listing into force. When nothing has changed the snapshot stays, and is known to be younger.
func (f *forge) take(r listed) {
	f.report.listed(r.index, r.err)
	if r.err != nil {
		return
	}
	f.listings[r.index] = sourced{name: f.opts.Sources[r.index].Name(), Listing: r.listing}
	seen, begun := f.state()
	if begun.IsZero() {
		return // the configuration is not complete before every source was listed
	}
	changed := !slices.Equal(seen, f.seen)
	if changed {
		f.seen = seen
		f.settle()
		f.settled = f.describe()
	}
	if f.valid {
		f.publish(f.snapshot, f.settled, begun)
	}
	if changed && f.valid && f.opts.Inspect != nil {
		f.inspections.put(inspection{f.snapshot, f.objects})
	}
}

// state is the revision of each listing, and when the oldest of them began.
func (f *forge) state() (seen []string, begun time.Time) {
	begun = f.listings[0].Started
	for _, l := range f.listings {
		seen = append(seen, l.Revision)
		if l.Started.Before(begun) {
			begun = l.Started
		}
	}
	return seen, begun
}

// describe says what is in force.
func (f *forge) describe() *settled {
	sources := map[string]string{}
	for i, source := range f.opts.Sources {
		sources[source.Name()] = f.seen[i]
	}
	d := &settled{Sources: sources, Objects: f.objects, ages: agesOf(f.objects)}
	if f.snapshot != nil {
		d.Digest, d.snapshot = f.snapshot.Revision(), f.snapshot
	}
	return d
}

// settle makes a snapshot of what the listings hold now.
func (f *forge) settle() {
	next := settle(f.objects, f.listings)
	digest := revision(next.objects)
	if f.snapshot != nil && digest == f.snapshot.Revision() {
		f.valid, f.objects = true, next.objects
		f.report.settled(append(next.problems, f.located()...).sort(), f.snapshot, f.seen)
		return
	}
	objects, snapshot, problems := f.compile(next.objects, digest)
	f.valid = snapshot != nil
	if f.valid {
		f.objects, f.snapshot, f.compiled = objects, snapshot, problems
		f.announce()
	}
	f.report.settled(append(next.problems, problems...).sort(), snapshot, f.seen)
}

// located are the problems of the snapshot, with the places where its objects are now.
func (f *forge) located() Problems {
	problems := slices.Clone(f.compiled)
	for i := range problems {
		p := &problems[i]
		if o, ok := f.objects[p.Key]; ok {
			p.File, p.Line = o.File, o.lineOf(p.Field)
		}
	}
	return problems
}

// compile makes a snapshot of the objects. One that cannot be compiled is replaced by its version in force, which could,
// or left out. It returns what the snapshot was made of, and no snapshot when there cannot be one.
func (f *forge) compile(objects map[Key]Object, digest string) (map[Key]Object, *match.Snapshot, Problems) {
	made, snapshot, problems := f.compileSound(objects, digest)
	if snapshot != nil {
		return made, snapshot, problems
	}
	sound, rejected := f.sift(objects)
	if len(rejected) == 0 {
		return objects, nil, problems
	}
	made, snapshot, problems = f.compileSound(sound, revision(sound))
	return made, snapshot, append(rejected, problems...)
}

// compileSound is compile for objects that make no compiler panic.
func (f *forge) compileSound(objects map[Key]Object, digest string) (map[Key]Object, *match.Snapshot, Problems) {
	snapshot, problems := f.tryCompile(f.snapshot, objects, digest)
	rejected := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Code != match.CodeRejected })
	if snapshot == nil || len(rejected) == 0 {
		return objects, snapshot, problems
	}
	objects = maps.Clone(objects)
	for _, p := range rejected {
		old, ok := f.objects[p.Key]
		if ok && old.digest != objects[p.Key].digest {
			objects[p.Key] = old
			rejected = append(rejected, kept(old))
		} else {
			delete(objects, p.Key)
		}
	}
	snapshot, problems = f.tryCompile(f.snapshot, objects, revision(objects))
	return objects, snapshot, append(rejected, problems...)
}

// tryCompile compiles. A panic is a problem, and no snapshot.
func (f *forge) tryCompile(last *match.Snapshot, objects map[Key]Object, digest string) (snapshot *match.Snapshot, problems Problems) {
	defer func() {
		if r := recover(); r != nil {
			snapshot, problems = nil, Problems{{
				Severity: match.SeverityError, Code: CodeInternal,
				Message: fmt.Sprintf("compiling the configuration failed, which is a fault of portcullis: %v", r),
			}}
		}
	}()
	return f.opts.Compile(last, digest, sortedObjects(objects))
}

// announce tells the clusters of the objects in force, if they are other ones than before.
func (f *forge) announce() {
	if f.opts.OnClusters == nil {
		return
	}
	all := map[Key]Object{}
	for key, o := range f.objects {
		if o.Cluster != nil {
			all[key] = o
		}
	}
	clusters, digests := []*kinds.Cluster{}, []string{}
	for _, o := range sortedObjects(all) {
		clusters, digests = append(clusters, o.Cluster), append(digests, o.digest)
	}
	if f.clusters == nil || !slices.Equal(digests, f.clusters) {
		f.clusters = digests
		f.opts.OnClusters(clusters)
	}
}
