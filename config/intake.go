package config

import (
	"context"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/config/kinds"
)

// intake decides by the listings which generation is in force and how fresh it is. It belongs to the goroutine of Run, which
// nothing keeps: the forge makes the generations, one at a time and the latest one next.
type intake struct {
	*Store

	forge       *forge
	inspections inspections

	listings []sourced // by source; one that was never listed has a zero Started
	seen     []string  // the revisions of the listings; nil before all sources were listed

	current  *generation // in force
	settled  *settled    // what current says of itself
	standing standing    // of current
	next     *standing   // of what the forge is at; nil while it has nothing to do
	failed   []string    // the listings of which the forge could make no snapshot; nil is the usual case
	clusters []string    // digests of those that were announced; nil before the first
}

func newIntake(s *Store) *intake {
	lastGood := byKey(s.opts.LastGood)
	s.opts.LastGood = nil // needed until the first generation
	return &intake{
		Store: s, forge: newForge(&s.opts), inspections: make(inspections, 1), listings: make([]sourced, len(s.opts.Sources)),
		current: &generation{objects: lastGood},
	}
}

func byKey(objects []Object) map[Key]Object {
	all := make(map[Key]Object, len(objects))
	for _, o := range objects {
		all[o.Key] = o
	}
	return all
}

// run takes listings and generations until ctx ends, or the first configuration is refused.
func (i *intake) run(ctx context.Context, results <-chan listed) error {
	for {
		select {
		case r := <-results:
			i.take(r)
		case g := <-i.forge.made:
			if err := i.finish(g); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes the result of a listing. It tells how fresh what is in force is, or shows a newer generation.
func (i *intake) take(r listed) {
	i.report.listed(r.index, r.err)
	if r.err != nil {
		return
	}
	i.listings[r.index] = sourced{name: i.opts.Sources[r.index].Name(), Listing: r.listing}
	seen, begun := i.state()
	if begun.IsZero() {
		return // the configuration is not complete before every source was listed
	}
	i.seen = seen
	if i.next != nil {
		i.next.shows(seen, begun, r.listing.Started, i.fresh(i.next))
	}
	if i.current.snapshot != nil {
		i.renew(begun, r.listing.Started)
	}
	i.start()
}

// renew puts what is in force into force anew, as fresh as the listings show it to be. While the last listings are known to
// make no snapshot it only grows older.
func (i *intake) renew(begun, latest time.Time) {
	if slices.Equal(i.seen, i.failed) {
		return
	}
	if i.failed != nil && slices.Equal(i.seen, i.standing.seen) {
		i.failed = nil
		i.report.settled(i.current.problems, i.current.snapshot, i.seen)
	}
	i.standing.shows(i.seen, begun, latest, i.fresh(&i.standing))
	i.publish(i.current.snapshot, i.settled, i.standing)
}

// fresh reports whether reviews could be judged by a generation now, whatever the clusters say.
func (i *intake) fresh(s *standing) bool { return i.opts.clock(s.begun).longer() <= i.opts.MaxAge }

// state is the revision of each listing, and when the oldest of them began.
func (i *intake) state() (seen []string, begun time.Time) {
	begun = i.listings[0].Started
	for _, l := range i.listings {
		seen = append(seen, l.Revision)
		if l.Started.Before(begun) {
			begun = l.Started
		}
	}
	return seen, begun
}

// start has the forge make what the listings show, unless it is at work, or that is in force or known to make no snapshot.
func (i *intake) start() {
	inForce := i.current.snapshot != nil && slices.Equal(i.seen, i.standing.seen)
	if i.next != nil || inForce || slices.Equal(i.seen, i.failed) {
		return
	}
	_, begun := i.state()
	i.next = &standing{seen: i.seen, begun: begun}
	i.forge.jobs <- job{before: i.current, listings: slices.Clone(i.listings)} // there is room: the forge has nothing to do
}

// finish takes what the forge has made. Something newer may have been listed meanwhile: that is made next. What was in force
// all the time and is listed again stays.
func (i *intake) finish(g *generation) error {
	made := *i.next
	i.next = nil
	switch {
	case i.current.snapshot != nil && slices.Equal(i.seen, i.standing.seen):
	case g.snapshot == nil:
		i.failed = made.seen
		i.report.settled(g.problems, nil, made.seen)
	default:
		if err := i.adopt(g, made); err != nil {
			return err
		}
	}
	i.start()
	return nil
}

// adopt puts a generation into force, unless it is the first and refused.
func (i *intake) adopt(g *generation, at standing) error {
	first := i.current.snapshot == nil
	i.current, i.standing, i.failed = g, at, nil
	i.settled = i.describe()
	if first && i.opts.First != nil {
		if err := i.opts.First(Configuration{settled: *i.settled, Begun: at.begun, Problems: g.problems}); err != nil {
			return err
		}
	}
	i.announce()
	i.report.settled(g.problems, g.snapshot, at.seen)
	i.publish(g.snapshot, i.settled, at)
	if i.opts.Inspect != nil {
		i.inspections.put(inspection{g.snapshot, g.objects})
	}
	return nil
}

// describe says what is in force.
func (i *intake) describe() *settled {
	sources := map[string]string{}
	for n, source := range i.opts.Sources {
		sources[source.Name()] = i.standing.seen[n]
	}
	return &settled{
		Digest: i.current.snapshot.Revision(), Sources: sources, Objects: i.current.objects,
		snapshot: i.current.snapshot, ages: agesOf(i.current.objects),
	}
}

// announce tells the clusters of the objects in force, if they are other ones than before.
func (i *intake) announce() {
	if i.opts.OnClusters == nil {
		return
	}
	all := map[Key]Object{}
	for key, o := range i.current.objects {
		if o.Cluster != nil {
			all[key] = o
		}
	}
	clusters, digests := []*kinds.Cluster{}, []string{}
	for _, o := range sortedObjects(all) {
		clusters, digests = append(clusters, o.Cluster), append(digests, o.digest)
	}
	if i.clusters == nil || !slices.Equal(digests, i.clusters) {
		i.clusters = digests
		i.opts.OnClusters(clusters)
	}
}
