package analysis

import (
	"math/bits"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// part is a phase of a call.
type part int

// The parts of a call, in their order.
const (
	partQueue part = iota
	partWire
	partHostQueue
	partHandler
	partController // of an initializer
	partWebhook
	partPatch
	parts
)

// String is the name of the phase in findings.
func (p part) String() string {
	return [parts]string{"queue", "wire", "host-queue", "handler", "controller", "webhook", "patch"}[p]
}

// hookKey names a hook in all clusters.
type hookKey struct{ stage, configuration, name string }

// callsKey names the calls of one hook in one cluster.
type callsKey struct {
	hook    hookKey
	cluster string
}

// edgeKey names the reviews of one cluster on one dispatcher.
type edgeKey struct{ dispatcher, cluster string }

// sum is a time that was counted n times.
type sum struct {
	took time.Duration
	n    uint64
}

func (s *sum) add(took time.Duration, n uint64) { s.took, s.n = s.took+took, s.n+n }

func (s *sum) mean() Duration { return mean(s.took, s.n) }

// byMinute has a sum for each minute, by Unix time.
type byMinute map[int64]*sum

func (m byMinute) add(minute int64, took time.Duration, n uint64) {
	if m[minute] == nil {
		m[minute] = &sum{}
	}
	m[minute].add(took, n)
}

// hookCalls has the calls of one hook in one cluster.
type hookCalls struct {
	calls, failed uint64
	took          latency.Histogram
	series        []*analysisv1.Latency
	parts         [parts]time.Duration
	minutes       [parts]byMinute
	failedParts   [parts]time.Duration // of parts, the time of the calls without a verdict
	failures      byMinute             // the calls without a verdict, and their time
	large, small  sum                  // by size of the object
	instances     map[string]*served
}

// served has the calls of one hook in one cluster by one instance.
type served struct {
	calls, failed uint64
	wire, host    time.Duration
}

// process has the calls of one instance, of all hooks and clusters.
type process struct {
	calls         uint64
	late          sum      // calls, on the wire
	minutes       byMinute // on the wire
	moments       map[int64]moments
	hooks         map[hookKey]bool
	clusters      map[string]time.Duration // for how long calls of each cluster had a slot
	byDispatcher  map[string]*sum          // on the wire
	inAllClusters time.Duration            // sum of clusters
}

// moments are the slots of a minute in which calls ended, and in which late calls did.
type moments struct{ active, late uint64 }

// edge has the reviews of one cluster on one dispatcher, and of its minutes how long the dispatcher ran.
type edge struct {
	held, arrival, own byMinute
	pulse              map[int64]pulse
}

type pulse struct{ observed, stalled time.Duration }

// evidence has the latencies of all dispatchers, added up as the causes need them.
type evidence struct {
	calls     map[callsKey]*hookCalls
	edges     map[edgeKey]*edge
	processes map[string]*process
	clusters  map[string]bool
}

// gathered adds up the latencies of all but some dispatchers.
func gathered(all []*analysisv1.Latency, without map[string]bool) *evidence {
	e := &evidence{calls: map[callsKey]*hookCalls{}, edges: map[edgeKey]*edge{}, processes: map[string]*process{}, clusters: map[string]bool{}}
	for _, l := range all {
		e.clusters[l.GetCluster()] = true
		switch {
		case without[l.GetDispatcherId()]:
		case l.GetHook().GetName() == "":
			e.edgeOf(edgeKey{l.GetDispatcherId(), l.GetCluster()}).add(l)
		default:
			h := hookKey{l.GetHook().GetStage(), l.GetHook().GetConfiguration(), l.GetHook().GetName()}
			e.callsOf(callsKey{h, l.GetCluster()}).add(l)
			e.addProcesses(h, l)
		}
	}
	return e
}

func (e *evidence) edgeOf(k edgeKey) *edge {
	if e.edges[k] == nil {
		e.edges[k] = &edge{held: byMinute{}, arrival: byMinute{}, own: byMinute{}, pulse: map[int64]pulse{}}
	}
	return e.edges[k]
}

func (e *evidence) callsOf(k callsKey) *hookCalls {
	if e.calls[k] == nil {
		c := &hookCalls{instances: map[string]*served{}, failures: byMinute{}}
		for p := range parts {
			c.minutes[p] = byMinute{}
		}
		e.calls[k] = c
	}
	return e.calls[k]
}

func (x *edge) add(l *analysisv1.Latency) {
	minute, n := l.GetMinute().GetSeconds(), uint64(l.GetCalls())
	x.held.add(minute, l.GetQueued().AsDuration(), n)
	x.arrival.add(minute, l.GetWire().AsDuration(), n)
	x.own.add(minute, l.GetHost().AsDuration(), n)
	x.pulse[minute] = pulse{l.GetObserved().AsDuration(), l.GetStalled().AsDuration()} // the same in all latencies of a dispatcher
}

// partsOf are the sums of the parts of calls.
func partsOf(l *analysisv1.Latency) (out [parts]time.Duration) {
	out[partQueue], out[partPatch] = l.GetQueued().AsDuration(), l.GetApplied().AsDuration()
	if !l.GetStreamed() {
		out[partWebhook] = l.GetWire().AsDuration()
		return out
	}
	if byControllers(l) {
		out[partController] = l.GetHost().AsDuration()
		return out
	}
	out[partWire], out[partHostQueue] = l.GetWire().AsDuration(), l.GetHostQueued().AsDuration()
	out[partHandler] = l.GetHost().AsDuration() - out[partHostQueue]
	return out
}

// byControllers reports whether controllers act for the hook, which is an initializer: no host had its calls.
func byControllers(l *analysisv1.Latency) bool {
	return l.GetHook().GetStage() == StageInitialize &&
		!slices.ContainsFunc(l.GetInstances(), func(i *analysisv1.Instance) bool { return i.GetName() != "" })
}

func (x *hookCalls) add(l *analysisv1.Latency) {
	n := uint64(l.GetCalls())
	x.calls, x.failed = x.calls+n, x.failed+uint64(l.GetFailed())
	x.took.Merge(l.GetTook())
	x.series = append(x.series, l)
	for p, d := range partsOf(l) {
		x.parts[p] += d
		x.minutes[p].add(l.GetMinute().GetSeconds(), d, n)
	}
	failed := time.Duration(0)
	for p, d := range failedPartsOf(l) {
		x.failedParts[p] += d
		failed += d
	}
	x.failures.add(l.GetMinute().GetSeconds(), failed, uint64(l.GetFailed()))
	took := time.Duration(0)
	for _, i := range l.GetInstances() {
		if x.instances[i.GetName()] == nil {
			x.instances[i.GetName()] = &served{}
		}
		s := x.instances[i.GetName()]
		s.calls, s.failed = s.calls+uint64(i.GetCalls()), s.failed+uint64(i.GetFailed())
		s.wire, s.host = s.wire+i.GetWire().AsDuration(), s.host+i.GetHost().AsDuration()
		took += i.GetTook().AsDuration()
	}
	large := l.GetLargeTook().AsDuration()
	x.large.add(large, uint64(l.GetLarge()))
	x.small.add(max(0, took-large), n-uint64(l.GetLarge()))
}

// largest is the part of a call with most time.
func (x *hookCalls) largest() part { return largest(&x.parts) }

func largest(of *[parts]time.Duration) (p part) {
	for q := range parts {
		if of[q] > of[p] {
			p = q
		}
	}
	return p
}

func (x *hookCalls) mean(p part) Duration { return mean(x.parts[p], x.calls) }

func (e *evidence) addProcesses(h hookKey, l *analysisv1.Latency) {
	if !l.GetStreamed() {
		return
	}
	minute := l.GetMinute().GetSeconds()
	for _, i := range l.GetInstances() {
		if i.GetName() == "" {
			continue
		}
		p := e.processes[i.GetName()]
		if p == nil {
			p = &process{
				minutes: byMinute{}, moments: map[int64]moments{}, hooks: map[hookKey]bool{},
				clusters: map[string]time.Duration{}, byDispatcher: map[string]*sum{},
			}
			e.processes[i.GetName()] = p
		}
		p.add(minute, l.GetDispatcherId(), l.GetCluster(), i)
		p.hooks[h] = true
	}
}

func (p *process) add(minute int64, dispatcher, cluster string, i *analysisv1.Instance) {
	calls, wire := uint64(i.GetCalls()), i.GetWire().AsDuration()
	p.calls += calls
	p.late.add(i.GetLateWire().AsDuration(), uint64(i.GetLate()))
	p.minutes.add(minute, wire, calls)
	m := p.moments[minute]
	p.moments[minute] = moments{m.active | i.GetActive(), m.late | i.GetLateIn()}
	slot := wire + i.GetHost().AsDuration()
	p.clusters[cluster] += slot
	p.inAllClusters += slot
	if p.byDispatcher[dispatcher] == nil {
		p.byDispatcher[dispatcher] = &sum{}
	}
	p.byDispatcher[dispatcher].add(wire, calls)
}

// count returns in how many moments calls ended, and late calls.
func (p *process) count() (active, late int) {
	for _, m := range p.moments {
		active, late = active+bits.OnesCount64(m.active), late+bits.OnesCount64(m.late)
	}
	return active, late
}

// firstLate is the first minute with late calls; zero if no minute with calls enough is before it.
func (p *process) firstLate() time.Time {
	for i, minute := range p.minutes.sorted() {
		if p.moments[minute].late == 0 {
			continue
		}
		if i == 0 {
			break
		}
		return time.Unix(minute, 0).UTC()
	}
	return time.Time{}
}

// mostlyLate reports whether the process is so slow to reach that its late calls tell nothing about single moments.
func (p *process) mostlyLate() bool { return 2*p.late.n > p.calls }

// lateWith reports whether calls of another process ended in the moments in which calls of p were late, and whether most of these moments
// had late calls of it too.
func (p *process) lateWith(other *process) (there, late bool) {
	var active, both int
	for minute, m := range p.moments {
		o := other.moments[minute]
		active, both = active+bits.OnesCount64(m.late&o.active), both+bits.OnesCount64(m.late&o.late)
	}
	return active > 0, active > 0 && 2*both > active
}

// since is the first of the minutes at the end that are all much slower than the median minute before them; zero without a minute before.
func (m byMinute) since() time.Time {
	minutes := m.sorted()
	for first := 1; first < len(minutes); first++ {
		before := make([]Duration, 0, first)
		for _, b := range minutes[:first] {
			before = append(before, m[b].mean())
		}
		slices.Sort(before)
		usual := before[len(before)/2]
		if !slices.ContainsFunc(minutes[first:], func(b int64) bool { return !muchSlower(m[b].mean(), usual) }) {
			return time.Unix(minutes[first], 0).UTC()
		}
	}
	return time.Time{}
}

// sorted are the minutes with calls enough to say something.
func (m byMinute) sorted() (minutes []int64) {
	for minute, s := range m {
		if s.n >= fewCalls {
			minutes = append(minutes, minute)
		}
	}
	slices.Sort(minutes)
	return minutes
}

// total adds up all minutes.
func (m byMinute) total() sum { return m.from(time.Time{}) }

// from adds up the minutes from a time on.
func (m byMinute) from(since time.Time) (s sum) {
	for minute, x := range m {
		if !time.Unix(minute, 0).Before(since) {
			s.add(x.took, x.n)
		}
	}
	return s
}

// merge adds other minutes.
func (m byMinute) merge(other byMinute) {
	for minute, s := range other {
		m.add(minute, s.took, s.n)
	}
}
