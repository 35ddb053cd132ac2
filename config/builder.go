package config

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// job is a generation to be built.
type job struct {
	before   *generation // in force
	listings []sourceListing
}

// builder decodes and compiles generations, one at a time, beside the goroutine that takes listings: both take long. The loop
// sends a job only when it has received the generation of the one before.
type builder struct {
	compile func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems)
	jobs    chan job
	built   chan *generation
}

func newBuilder(opts *StoreOptions) *builder {
	return &builder{compile: opts.Compile, jobs: make(chan job, 1), built: make(chan *generation)}
}

func (b *builder) run(ctx context.Context) {
	for {
		select {
		case j := <-b.jobs:
			select {
			case b.built <- b.build(j):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// build merges the listings of a job and compiles the result, unless it means what is in force.
func (b *builder) build(j job) *generation {
	for i := range j.listings {
		j.listings[i].Listing = j.listings[i].Decoded()
	}
	merged := mergeListings(j.before.objects, j.listings)
	objects, refused := bounded(j.before.objects, merged.objects, TotalLimit())
	merged.objects, merged.problems = objects, append(merged.problems, refused...)
	digest := revision(merged.objects)
	if last := j.before.snapshot; last != nil && digest == last.Revision() {
		g := &generation{objects: merged.objects, snapshot: last, compiled: located(j.before.compiled, merged.objects)}
		g.problems = append(merged.problems, g.compiled...).sort()
		return g
	}
	c := compiling{builder: b, before: j.before}
	g := &generation{}
	g.objects, g.snapshot, g.compiled = c.all(merged.objects, digest)
	g.problems = append(merged.problems, g.compiled...).sort()
	return g
}

// located are problems with the places where their objects are now.
func located(problems Problems, objects map[Key]Object) Problems {
	problems = slices.Clone(problems)
	for i := range problems {
		p := &problems[i]
		if o, ok := objects[p.Key]; ok {
			p.File, p.Line = o.File, o.LineOf(p.Field)
		}
	}
	return problems
}

// compiling is the compiling of one generation.
type compiling struct {
	*builder

	before *generation // in force
}

// all makes a snapshot of the objects. One that cannot be compiled is replaced by its version in force, which could,
// or left out. It returns what the snapshot was made of, and no snapshot when there cannot be one.
func (c *compiling) all(objects map[Key]Object, digest string) (map[Key]Object, *match.Snapshot, Problems) {
	made, snapshot, problems := c.allSound(objects, digest)
	if snapshot != nil {
		return made, snapshot, problems
	}
	sound, rejected := c.sift(objects)
	if len(rejected) == 0 {
		return objects, nil, problems
	}
	made, snapshot, problems = c.allSound(sound, revision(sound))
	return made, snapshot, append(rejected, problems...)
}

// allSound is all for objects that make no compiler panic.
func (c *compiling) allSound(objects map[Key]Object, digest string) (map[Key]Object, *match.Snapshot, Problems) {
	snapshot, problems := c.try(c.before.snapshot, objects, digest)
	rejected := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Code != match.CodeRejected })
	if snapshot == nil || len(rejected) == 0 {
		return objects, snapshot, problems
	}
	objects = maps.Clone(objects)
	for _, p := range rejected {
		old, ok := c.before.objects[p.Key]
		if ok && old.digest != objects[p.Key].digest {
			objects[p.Key] = old
			rejected = append(rejected, keptLastGood(old))
		} else {
			delete(objects, p.Key)
		}
	}
	snapshot, problems = c.try(c.before.snapshot, objects, revision(objects))
	return objects, snapshot, append(rejected, problems...)
}

// try compiles. A panic is a problem, and no snapshot.
func (c *compiling) try(last *match.Snapshot, objects map[Key]Object, digest string) (snapshot *match.Snapshot, problems Problems) {
	defer func() {
		if r := recover(); r != nil {
			snapshot, problems = nil, Problems{{
				Severity: match.SeverityError, Code: CodeInternal,
				Message: fmt.Sprintf("compiling the configuration failed, which is a fault of portcullis: %v", r),
			}}
		}
	}()
	return c.compile(last, digest, sortedObjects(objects))
}
