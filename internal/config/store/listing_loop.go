package store

import (
	"context"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// listingLoop takes listings and decides by them which generation is in force, and how fresh it is. It belongs to the goroutine
// of Run, and never blocks on decoding or compiling: the builder does that, one generation at a time, the latest one next.
type listingLoop struct {
	*Store

	builder     *builder
	inspections inspections

	listings []sourceListing // by source; Started is zero before the first listing
	seen     []string        // the revisions of the listings; nil before all sources were listed

	inForce  *generation // the published one; before the first, one without snapshot that has the last good objects
	building *freshness  // of the generation that the builder makes; nil while it is idle
	failed   []string    // the revisions of the listings that could not be compiled; nil is the usual case
	clusters []string    // digests of those that OnClusters got last; nil before the first
}

func newListingLoop(s *Store) *listingLoop {
	lastGood := byKey(s.opts.LastGood)
	s.opts.LastGood = nil // needed until the first generation
	return &listingLoop{
		Store: s, builder: newBuilder(s.opts.Work), inspections: make(inspections, 1), listings: make([]sourceListing, len(s.opts.Sources)),
		inForce: &generation{objects: lastGood},
	}
}

func byKey(objects []config.Object) map[config.Key]config.Object {
	all := make(map[config.Key]config.Object, len(objects))
	for _, o := range objects {
		all[o.Key] = o
	}
	return all
}

// run takes listings and generations until ctx ends, or the first configuration is refused.
func (l *listingLoop) run(ctx context.Context, results <-chan listed) error {
	for {
		select {
		case r := <-results:
			l.take(r)
		case g := <-l.builder.built:
			if err := l.finish(g); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes the result of a listing: it renews the generation in force, or shows that there is a newer one.
func (l *listingLoop) take(r listed) {
	l.problems.listed(r.index, r.err)
	if r.err != nil {
		return
	}
	l.listings[r.index] = sourceListing{name: l.opts.Sources[r.index].Name(), Listing: r.listing}
	seen, begun := l.state()
	if begun.IsZero() {
		return // the configuration is not complete before every source was listed
	}
	l.seen = seen
	if l.building != nil {
		l.building.update(seen, begun, r.listing.Started, l.fresh(l.building))
	}
	if l.inForce.snapshot != nil {
		l.renew(begun, r.listing.Started)
	}
	l.start()
}

// renew publishes the generation in force again, with the freshness that the listings show. While the last listings are known
// not to compile it only grows older.
func (l *listingLoop) renew(begun, latest time.Time) {
	if slices.Equal(l.seen, l.failed) {
		return
	}
	if l.failed != nil && slices.Equal(l.seen, l.inForce.seen) {
		l.failed = nil
		l.problems.built(l.inForce.problems, l.inForce.snapshot, l.seen)
	}
	g := *l.inForce
	g.update(l.seen, begun, latest, l.fresh(&g.freshness))
	l.inForce = &g
	l.publish(&g)
}

// fresh reports whether a generation is fresh for clusters that set no maximum age.
func (l *listingLoop) fresh(f *freshness) bool {
	return l.opts.clock(f.begun).longer() <= l.opts.MaxAge
}

// state is the revision of each listing, and when the oldest of them began.
func (l *listingLoop) state() (seen []string, begun time.Time) {
	begun = l.listings[0].Started
	for _, one := range l.listings {
		seen = append(seen, one.Revision)
		if one.Started.Before(begun) {
			begun = one.Started
		}
	}
	return seen, begun
}

// start has the builder compile the listings, unless it is busy, or their configuration is in force or known not to compile.
func (l *listingLoop) start() {
	inForce := l.inForce.snapshot != nil && slices.Equal(l.seen, l.inForce.seen)
	if l.building != nil || inForce || slices.Equal(l.seen, l.failed) {
		return
	}
	_, begun := l.state()
	l.building = &freshness{seen: l.seen, begun: begun}
	l.builder.jobs <- job{before: l.inForce, listings: slices.Clone(l.listings)} // there is room: the builder is idle
}

// finish takes the generation that was built. If the generation in force has been listed again meanwhile, it stays. If something
// newer has been listed, that is built next.
func (l *listingLoop) finish(g *generation) error {
	g.freshness = *l.building
	l.building = nil
	switch {
	case l.inForce.snapshot != nil && slices.Equal(l.seen, l.inForce.seen):
	case g.snapshot == nil:
		l.failed = g.seen
		l.problems.built(g.problems, nil, g.seen)
	default:
		if err := l.adopt(g); err != nil {
			return err
		}
	}
	l.start()
	return nil
}

// adopt puts a generation into force, unless it is the first and refused.
func (l *listingLoop) adopt(g *generation) error {
	g.sources, g.ages = l.sources(g), maximumAgesOf(g.objects)
	if l.inForce.snapshot == nil && l.opts.First != nil {
		c := g.configuration()
		c.Problems = g.problems
		if err := l.opts.First(c); err != nil {
			return err
		}
	}
	l.inForce, l.failed = g, nil
	l.announce()
	l.problems.built(g.problems, g.snapshot, g.seen)
	l.publish(g)
	if l.opts.Inspect != nil {
		l.inspections.put(inspection{g.snapshot, g.objects})
	}
	return nil
}

// sources are the revisions of the listings of a generation, by the name of the source.
func (l *listingLoop) sources(g *generation) map[string]string {
	sources := map[string]string{}
	for i, source := range l.opts.Sources {
		sources[source.Name()] = g.seen[i]
	}
	return sources
}

// announce tells the clusters of the objects in force, if they are other ones than before.
func (l *listingLoop) announce() {
	if l.opts.OnClusters == nil {
		return
	}
	all := map[config.Key]config.Object{}
	for key, o := range l.inForce.objects {
		if o.Cluster != nil {
			all[key] = o
		}
	}
	clusters, digests := []*kinds.Cluster{}, []string{}
	for _, o := range config.SortedObjects(all) {
		clusters, digests = append(clusters, o.Cluster), append(digests, o.Digest)
	}
	if l.clusters == nil || !slices.Equal(digests, l.clusters) {
		l.clusters = digests
		l.opts.OnClusters(clusters)
	}
}
