package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

const (
	// building holds turns and does not rest. inspecting rests, and has the name that no caller has, who else would rest with it.
	building, inspecting = "configuration", ""
	// maxTurn is how long a change waits for its turn.
	maxTurn = 2 * time.Second
)

// job is a generation to be built.
type job struct {
	before   *generation // in force
	listings []sourceListing
}

// builder decodes and compiles generations, one at a time, beside the goroutine that takes listings: both take long. The loop
// sends a job only when it has received the generation of the one before.
type builder struct {
	work  *turns.Queue
	jobs  chan job
	built chan *generation
}

func newBuilder(work *turns.Queue) *builder {
	return &builder{work: work, jobs: make(chan job, 1), built: make(chan *generation)}
}

func (b *builder) run(ctx context.Context) {
	for {
		select {
		case j := <-b.jobs:
			select {
			case b.built <- b.build(ctx, &j):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// build builds a generation in its turn, and books the time in equal parts to the authors whose objects have changed: they rest from it before their
// next calls. A change that has waited for maxTurn has no turn.
func (b *builder) build(ctx context.Context, j *job) *generation {
	waiting, cancel := context.WithTimeout(ctx, maxTurn)
	defer cancel()
	done, err := b.work.Wait(waiting, building, false)
	if err == nil {
		defer done()
	}
	begun := time.Now()
	g := j.build()
	took, authors := time.Since(begun), g.authors(j.before)
	for _, author := range authors {
		b.work.Spend(author, took/time.Duration(len(authors)))
	}
	return g
}

// authors are the authors of the objects that a generation before it does not have.
func (g *generation) authors(before *generation) (all []string) {
	for key, o := range g.objects {
		if o.Author != "" && o.Digest != before.objects[key].Digest && !slices.Contains(all, o.Author) {
			all = append(all, o.Author)
		}
	}
	return all
}

// build merges the listings and compiles the result.
//
// Decode and match.Compile recover from a panic in a single document or object and go on with the others. A panic anywhere else
// is recovered here: it makes a generation without snapshot, so that the one in force stays.
func (j *job) build() (g *generation) {
	g = &generation{}
	defer func() {
		if r := recover(); r != nil {
			g.snapshot, g.problems = nil, append(g.problems, config.Problem{
				Severity: match.SeverityError, Code: config.CodeInternal,
				Message: fmt.Sprintf("compiling the configuration failed, which is a fault of portcullis: %v", r),
			}).Sorted()
		}
	}()
	for i := range j.listings {
		j.listings[i].Listing = j.listings[i].Decoded()
	}
	merged := mergeListings(j.before.objects, j.listings)
	objects, refused := bounded(j.before.objects, merged.objects, config.TotalLimit())
	g.objects, g.problems = objects, slices.Concat(merged.problems, refused)
	g.compile(j.before)
	g.problems = append(g.problems, g.compiled...).Sorted()
	return g
}

// compile makes the snapshot of the objects, or takes the one before if they mean the same. An object that cannot be compiled is
// replaced by its version in force, or left out.
func (g *generation) compile(before *generation) {
	digest := revision(g.objects)
	if before.snapshot != nil && digest == before.snapshot.Revision() {
		g.snapshot, g.compiled = before.snapshot, located(before.compiled, g.objects)
		return
	}
	g.snapshot, g.compiled = config.Recompile(before.snapshot, digest, config.SortedObjects(g.objects))
	rejected := slices.DeleteFunc(slices.Clone(g.compiled), func(p config.Problem) bool { return p.Code != match.CodeRejected })
	if len(rejected) == 0 {
		return
	}
	g.objects = maps.Clone(g.objects)
	for _, p := range rejected {
		old, ok := before.objects[p.Key]
		if ok && old.Digest != g.objects[p.Key].Digest {
			g.objects[p.Key] = old
			rejected = append(rejected, keptLastGood(old))
		} else {
			delete(g.objects, p.Key)
		}
	}
	g.snapshot, g.compiled = config.Recompile(before.snapshot, revision(g.objects), config.SortedObjects(g.objects))
	g.compiled = append(rejected, g.compiled...)
}

// located are problems with the places where their objects are now.
func located(problems config.Problems, objects map[config.Key]config.Object) config.Problems {
	problems = slices.Clone(problems)
	for i := range problems {
		p := &problems[i]
		if o, ok := objects[p.Key]; ok {
			p.File, p.Line = o.File, o.LineOf(p.Field)
		}
	}
	return problems
}
