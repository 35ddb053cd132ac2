package store

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// generation is one compiled configuration with the listings that it was made of. Configuration is its public view.
//
// The builder sets objects, snapshot and problems; the goroutine of Run sets the rest before it publishes the generation. A
// published generation is immutable and may be read without a lock. A listing that shows the same configuration again publishes
// a copy with another freshness; the copies share one snapshotRef.
type generation struct {
	objects  map[config.Key]config.Object
	snapshot *match.Snapshot // nil when the objects could not be compiled: the generation before stays in force
	compiled config.Problems // of the snapshot
	problems config.Problems // all, also of the snapshot

	sources map[string]string // the revision of each source's listing, by the name of the source
	ages    maximumAges
	freshness

	ref  *snapshotRef  // nil before the first generation is in force
	next chan struct{} // closed when the next generation or copy is published
}

// configuration is the public view, without the parts that depend on the time.
func (g *generation) configuration() Configuration {
	c := Configuration{Begun: g.begun, Sources: g.sources, Objects: g.objects, snapshot: g.snapshot, maxAge: g.ages.longest, next: g.next}
	if g.snapshot != nil {
		c.Digest = g.snapshot.Revision()
	}
	return c
}

// maximumAges are the maximum ages that Cluster documents set (spec.maxConfigurationAge). They are part of the configuration:
// while it cannot be read, the ages of the generation in force apply.
type maximumAges struct {
	byCluster map[string]time.Duration
	longest   time.Duration // 0 when no cluster sets one
}

func maximumAgesOf(objects map[config.Key]config.Object) maximumAges {
	ages := maximumAges{byCluster: map[string]time.Duration{}}
	for key, o := range objects {
		if o.Cluster == nil {
			continue
		}
		if age := o.Cluster.Spec.MaxAge(); age > 0 {
			ages.byCluster[key.Name] = age
			ages.longest = max(ages.longest, age)
		}
	}
	return ages
}
