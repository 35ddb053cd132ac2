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
	valid    bool // whether snapshot is what seen makes: false while that cannot be compiled
	clusters []string
}

func newForge(s *Store) *forge {
	return &forge{Store: s, listings: make([]sourced, len(s.opts.Sources))}
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
	if !slices.Equal(seen, f.seen) {
		f.seen = seen
		f.settle()
		f.settled = f.describe()
	}
	if f.valid {
		f.publish(f.snapshot, f.settled, begun)
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
		f.report.settled(next.problems, f.snapshot, f.seen)
		return
	}
	objects, snapshot, problems := f.compile(next.objects, digest)
	f.valid = snapshot != nil
	if f.valid {
		f.objects, f.snapshot = objects, snapshot
		f.announce()
	}
	f.report.settled(append(next.problems, problems...).sort(), snapshot, f.seen)
}

// compile makes a snapshot of the objects. One that cannot be compiled is replaced by its version in force, which could,
// or left out. It returns what the snapshot was made of, and no snapshot when there cannot be one.
func (f *forge) compile(objects map[Key]Object, digest string) (map[Key]Object, *match.Snapshot, Problems) {
	snapshot, problems := f.tryCompile(objects, digest)
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
	snapshot, problems = f.tryCompile(objects, revision(objects))
	return objects, snapshot, append(rejected, problems...)
}

// tryCompile compiles. A panic is a problem, and no snapshot.
func (f *forge) tryCompile(objects map[Key]Object, digest string) (snapshot *match.Snapshot, problems Problems) {
	defer func() {
		if r := recover(); r != nil {
			snapshot, problems = nil, Problems{{
				Severity: match.SeverityError, Code: CodeInternal,
				Message: fmt.Sprintf("compiling the configuration failed, which is a fault of portcullis: %v", r),
			}}
		}
	}()
	return f.opts.Compile(f.snapshot, digest, sortedObjects(objects))
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
