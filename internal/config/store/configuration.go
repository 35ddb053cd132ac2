package store

import (
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Configuration is the public view of a generation at one moment. It is immutable.
type Configuration struct {
	// Digest is the revision of the snapshot; empty before the first.
	Digest string
	// Sources are the versions of the listings that the configuration was made of, by source.
	Sources map[string]string
	// Objects are those in force.
	Objects map[config.Key]config.Object
	// Begun is when the oldest of the listings began by which it may judge; zero before the first.
	Begun time.Time
	// Fresh is whether it is fresh for the reviews of some cluster.
	Fresh bool
	// Judging is whether such reviews are judged: it is Fresh, or a Permit holds.
	Judging bool
	// Problems are the problems of the sources, of the documents, and of the generation.
	Problems config.Problems

	snapshot *match.Snapshot
	maxAge   time.Duration
	next     chan struct{}
}

// MaxAge is the longest maximum age that a Cluster sets; 0 when none does.
func (c *Configuration) MaxAge() time.Duration { return c.maxAge }

// Snapshot is the compiled form of the objects, for Recompile; reviews get theirs from Store.Acquire. nil before the first.
func (c *Configuration) Snapshot() *match.Snapshot { return c.snapshot }

// Next is closed when the configuration has been listed again, changed or not.
func (c *Configuration) Next() <-chan struct{} { return c.next }

// Diverging are the objects whose last good version is in force.
func (c *Configuration) Diverging() []config.Key {
	var keys []config.Key
	for _, p := range c.Problems {
		if p.Code == config.CodeKept {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

// Uncovered are the errors of documents of which no version is in force, not even an older one. A conflict of routes is none of them: it
// takes nothing out of force, and the mesh makes each call that either route asks for, or it fails. Nor is an order that is a cycle, nor are
// params that contradict each other.
// Documents that do not name their objects have older versions if as many objects of their file are kept, and no other error is about
// those.
func (c *Configuration) Uncovered() config.Problems {
	kept, named, unnamed := map[config.Key]file{}, map[config.Key]bool{}, map[file]map[string]bool{}
	errs := slices.DeleteFunc(slices.Clone(c.Problems), func(p config.Problem) bool {
		if p.Code == config.CodeKept {
			kept[p.Key] = file{p.Source, p.File}
		}
		return p.Severity != match.SeverityError || p.Code == config.CodeKept || p.Code == match.CodeRouteConflict ||
			p.Code == match.CodeInitializerOrder || p.Code == config.CodeParamsConflict
	})
	for _, p := range errs {
		from := file{p.Source, p.File}
		switch {
		case p.NamesObject():
			named[p.Key] = true
		case unnamed[from] == nil:
			unnamed[from] = map[string]bool{p.Document: true}
		default:
			unnamed[from][p.Document] = true
		}
	}
	spare := map[file]int{}
	for key, from := range kept {
		if !named[key] {
			spare[from]++
			spare[file{from.source, ""}]++
		}
	}
	return slices.DeleteFunc(errs, func(p config.Problem) bool {
		switch from := (file{p.Source, p.File}); {
		case p.Code == config.CodeSource:
			return false
		case p.NamesObject():
			_, ok := kept[p.Key]
			return ok
		default:
			return spare[from] >= len(unnamed[from])
		}
	})
}

// Restored are the objects in force that were saved before the process was started, in order.
func (c *Configuration) Restored() []config.Object {
	all := map[config.Key]config.Object{}
	for key, o := range c.Objects {
		if !o.Saved.IsZero() {
			all[key] = o
		}
	}
	return config.SortedObjects(all)
}
