package latency

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/periods"
)

const (
	// Retention is how far back records go, unless MaxBytes are reached before.
	Retention = time.Hour
	// MaxBytes bounds all records of a dispatcher, in bytes. Past it the oldest minute of the cluster with most of them goes: a cluster
	// that floods shortens its own past.
	MaxBytes = 32 << 20
	// MaxInstances is how many instances of hosts have counts of their own for each hook and minute.
	MaxInstances = 16
	// MaxHooks is how many hooks of one cluster have counts in one minute.
	MaxHooks = 1024
	// LargeObject is how many bytes an object has at least whose calls are counted apart.
	LargeObject = 64 << 10
	// LateWire is how long a call is at least on its way to the host and back to be counted as late: links between continents take less.
	LateWire = 100 * time.Millisecond
	// Slots is the number of parts of a minute that have a bit for the calls of an instance.
	Slots = 64
	// samples is how many reviews of a cluster are kept in each minute and shard whatever they took, the first ones.
	samples = 4

	// shards divide the records of a cluster, so that reviews that end at the same time do not wait for each other.
	shards = 4

	// Sizes are estimates for the bound.
	seriesBytes, instanceBytes, reviewBytes, callBytes = 772, 160, 340, 210
)

// Recorder keeps the records. Its methods may be called concurrently.
type Recorder struct {
	log   *periods.Log[minute]
	pulse pulse
}

// minute has the records of one minute.
type minute struct {
	begun  time.Time // whole minutes
	bytes  int64
	series map[match.HookID]*series
	kept   []*ReviewRecord // at most samples
}

// series has the counts of one hook in one minute, and the reviews that are kept for it.
type series struct {
	Series
	slowest, failed *ReviewRecord
	slowestTook     time.Duration
	next            *series // of the call after it in the last review; nearly always of the next review too
}

// Series has the counts of one hook in one cluster and minute. The hook without a name stands for the reviews of its stage themselves: their
// calls are reviews.
type Series struct {
	// Cluster sent the reviews.
	Cluster string
	// Hook was called.
	Hook match.HookID
	// Minute is its begin.
	Minute time.Time
	// Calls have ended in it, Failed of them without a verdict, and FailedOpen of these let the review go on.
	Calls, Failed, FailedOpen uint32
	// Waited is how many reviews waited for a call of the hook alone.
	Waited uint32
	// Took counts how long calls took.
	Took Histogram
	// Queued, Wire, Host, Applied and Alone are sums over all calls. For reviews Queued is the time before the configuration was known, Wire the time
	// in the edge, and Host the time in the dispatcher itself.
	Queued, Wire, Host, Applied, Alone time.Duration
	// HostQueued is the part of Host in which calls waited for a handler.
	HostQueued time.Duration
	// FailedQueued, FailedWire and FailedHost are the parts of Queued, Wire and Host of the calls without a verdict; zero for reviews.
	FailedQueued, FailedWire, FailedHost time.Duration
	// Large is how many calls were about an object of LargeObject or more, and LargeTook the sum of their time.
	Large     uint32
	LargeTook time.Duration
	// Observed is for how long the dispatcher looked in this minute whether it runs, and Stalled for how long it did not, for reviews.
	Observed, Stalled time.Duration
	// Instances are those that answered, or were asked; at most MaxInstances. The rest is under the empty name.
	Instances []Instance
	// Streamed is whether hosts serve it over streams.
	Streamed bool
}

// Instance has the counts of the calls of one hook by one instance of its host.
type Instance struct {
	// Name is the name of the instance.
	Name string
	// Calls, and Failed of them without a verdict.
	Calls, Failed uint32
	// Late calls were on their way for LateWire or longer.
	Late uint32
	// Took, Host and Wire are sums; LateWire is the part of Wire of late calls.
	Took, Host, Wire, LateWire time.Duration
	// Active has a bit for each of the Slots of the minute in which a call ended, and LateIn for those in which a late one did. When a
	// process stops for a moment, all its late calls end in the same slot.
	Active, LateIn uint64
}

// NewRecorder returns a recorder that holds at most so many bytes; zero means MaxBytes.
func NewRecorder(maxBytes int64) *Recorder {
	o := periods.Options{Length: time.Minute, Retention: Retention, MaxBytes: cmp.Or(maxBytes, MaxBytes), Shards: shards}
	return &Recorder{log: periods.New(o, func(begun time.Time) *minute {
		return &minute{begun: begun, series: map[match.HookID]*series{}}
	})}
}

// Add records a review that ended now. Its calls have their Alone. The caller keeps the review and may write it again.
func (r *Recorder) Add(now time.Time, v *ReviewRecord) {
	r.log.Update(now, v.Cluster, v.UID, func(m *minute) int64 { return m.add(now, v) })
}

// Keep forgets all clusters but these.
func (r *Recorder) Keep(clusters []string) { r.log.Keep(clusters) }

// add counts a review and its calls, and keeps it if it is among the slowest, the failed or the first ones. It returns how many bytes it took.
func (m *minute) add(now time.Time, v *ReviewRecord) (grown int64) {
	before, slot := m.bytes, m.slotOf(now)
	var kept *ReviewRecord
	keep := func() *ReviewRecord {
		if kept == nil {
			kept = v.clone()
			m.bytes += reviewBytes + callBytes*int64(len(v.Calls))
		}
		return kept
	}
	if len(m.kept) < samples {
		m.kept = append(m.kept, keep())
	}
	last := m.seriesOf(v.Cluster, match.HookID{Stage: v.Stage})
	if last != nil {
		last.addReview(v)
		last.remember(v.Took+v.Edge, v.Failed(), keep)
	}
	for i := range v.Calls {
		c := &v.Calls[i]
		s := m.seriesAfter(last, v.Cluster, c.Hook)
		if s == nil {
			continue
		}
		last = s
		m.bytes += s.addCall(c, v.Size, slot)
		s.remember(c.Took(), c.Failed(), keep)
	}
	return m.bytes - before
}

// slotOf returns the bit of the slot of a time.
func (m *minute) slotOf(now time.Time) uint64 {
	return 1 << min(Slots-1, max(0, now.Sub(m.begun)*Slots/time.Minute))
}

// seriesAfter is seriesOf for the call that follows a call of the series last. Nearly all reviews need no look into the map.
func (m *minute) seriesAfter(last *series, cluster string, hook match.HookID) *series {
	if last == nil {
		return m.seriesOf(cluster, hook)
	}
	if last.next == nil || last.next.Hook != hook {
		last.next = m.seriesOf(cluster, hook)
	}
	return last.next
}

// seriesOf returns nil for hooks past MaxHooks.
func (m *minute) seriesOf(cluster string, hook match.HookID) *series {
	s := m.series[hook]
	if s == nil && len(m.series) < MaxHooks {
		s = &series{Series: Series{Cluster: strings.Clone(cluster), Hook: hook, Minute: m.begun}}
		m.series[hook] = s
		m.bytes += seriesBytes
	}
	return s
}

// remember keeps a review if it is the slowest so far, or the first that failed.
func (s *series) remember(took time.Duration, failed bool, keep func() *ReviewRecord) {
	if s.slowest == nil || took > s.slowestTook {
		s.slowest, s.slowestTook = keep(), took
	}
	if failed && s.failed == nil {
		s.failed = keep()
	}
}

func (s *Series) addReview(v *ReviewRecord) {
	s.Calls++
	if v.Failed() {
		s.Failed++
	}
	s.Took.Observe(v.Took + v.Edge)
	s.Queued, s.Wire, s.Host = s.Queued+v.Held, s.Wire+v.Edge, s.Host+v.Own
}

// addCall returns how many bytes it took.
func (s *Series) addCall(c *CallRecord, size int, slot uint64) (grown int64) {
	s.Calls++
	s.Streamed = c.Streamed
	if c.Failed() {
		s.Failed++
		s.FailedQueued, s.FailedWire, s.FailedHost = s.FailedQueued+c.Queued, s.FailedWire+c.Wire, s.FailedHost+c.Host
		if c.Outcome == OutcomeFailedOpen {
			s.FailedOpen++
		}
	}
	if c.Alone > 0 {
		s.Waited++
	}
	took := c.Took()
	s.Took.Observe(took)
	s.Queued, s.Wire, s.Host = s.Queued+c.Queued, s.Wire+c.Wire, s.Host+c.Host
	s.HostQueued, s.Applied, s.Alone = s.HostQueued+c.HostQueued, s.Applied+c.Applied, s.Alone+c.Alone
	if size >= LargeObject {
		s.Large, s.LargeTook = s.Large+1, s.LargeTook+took
	}
	n, grown := s.instanceOf(c.Instance)
	n.add(c, took, slot)
	return grown
}

// instanceOf returns the counts of an instance. Past MaxInstances further instances share one count, without a name.
func (s *Series) instanceOf(name string) (n *Instance, grown int64) {
	for i := range s.Instances {
		if n = &s.Instances[i]; n.Name == name {
			return n, 0
		}
	}
	if len(s.Instances) >= MaxInstances && name != "" {
		return s.instanceOf("")
	}
	s.Instances = append(s.Instances, Instance{Name: name})
	return &s.Instances[len(s.Instances)-1], instanceBytes
}

func (n *Instance) add(c *CallRecord, took time.Duration, slot uint64) {
	n.Calls++
	n.Took, n.Host, n.Wire = n.Took+took, n.Host+c.Host, n.Wire+c.Wire
	n.Active |= slot
	if c.Streamed && c.Wire >= LateWire {
		n.Late, n.LateWire = n.Late+1, n.LateWire+c.Wire
		n.LateIn |= slot
	}
	if c.Failed() {
		n.Failed++
	}
}

// Query selects records.
type Query struct {
	// Cluster and Hook (a name) select; empty selects all.
	Cluster, Hook string
	// Since and Until bound the minutes by their begin; zero bounds nothing.
	Since, Until time.Time
	// Behind selects the reviews that follow a place in the order of [Recorder.Reviews]; zero selects all.
	Behind Place
}

// Place is the place of a review in the order of [Recorder.Reviews]: the slowest come first.
type Place struct {
	// Took is Edge and Took of the review, and UID is its own.
	Took time.Duration
	UID  string
}

// Place is the place of the review.
func (r *ReviewRecord) Place() Place { return Place{r.Edge + r.Took, r.UID} }

func (p Place) compare(other Place) int {
	return cmp.Or(cmp.Compare(other.Took, p.Took), cmp.Compare(p.UID, other.UID))
}

// each calls f with each minute that a query selects, under the lock of its shard.
func (r *Recorder) each(q Query, f func(*minute)) {
	r.log.Each(periods.Query{Cluster: q.Cluster, Since: q.Since, Until: q.Until}, func(_ string, m *minute) { f(m) })
}

// Series returns the counts of hooks and reviews, by minute. One hook, cluster and minute may have several, which belong together. With
// Query.Hook the series of reviews are there too.
func (r *Recorder) Series(q Query) (all []Series) {
	r.each(q, func(m *minute) {
		for _, s := range m.series {
			if q.Hook == "" || s.Hook.Name == "" || s.Hook.Name == q.Hook {
				c := s.Series
				c.Instances = slices.Clone(c.Instances)
				if s.Hook.Name == "" {
					c.Observed, c.Stalled = r.pulse.of(m.begun)
				}
				all = append(all, c)
			}
		}
	})
	return all
}

// Reviews returns reviews that are kept, the slowest first, at most limit. With Query.Hook they are those that are kept for this hook.
func (r *Recorder) Reviews(q Query, limit int) []*ReviewRecord {
	seen := map[*ReviewRecord]bool{}
	r.each(q, func(m *minute) {
		for _, s := range m.series {
			if q.Hook != "" && s.Hook.Name != q.Hook {
				continue
			}
			for _, v := range []*ReviewRecord{s.slowest, s.failed} {
				if v != nil {
					seen[v] = true
				}
			}
		}
		if q.Hook == "" {
			for _, v := range m.kept {
				seen[v] = true
			}
		}
	})
	if q.Behind != (Place{}) {
		maps.DeleteFunc(seen, func(v *ReviewRecord, _ bool) bool { return v.Place().compare(q.Behind) <= 0 })
	}
	all := slices.SortedFunc(maps.Keys(seen), func(a, b *ReviewRecord) int { return a.Place().compare(b.Place()) })
	return all[:min(len(all), limit)]
}

// Find returns the records of a review that are kept, by its uid or trace in hexadecimal: one for each stage that it was judged in.
func (r *Recorder) Find(id string) []*ReviewRecord {
	var found []*ReviewRecord
	r.each(Query{}, func(m *minute) {
		add := func(v *ReviewRecord) {
			if v != nil && (v.UID == id || v.TraceID.String() == id) && !slices.Contains(found, v) {
				found = append(found, v)
			}
		}
		for _, v := range m.kept {
			add(v)
		}
		for _, s := range m.series {
			add(s.slowest)
			add(s.failed)
		}
	})
	slices.SortFunc(found, func(a, b *ReviewRecord) int { return a.Begun.Compare(b.Begun) })
	return found
}
