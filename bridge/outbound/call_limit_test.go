package outbound

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
)

// limitScript plays the steps of a scenario on a callLimit. A call has the name of its cluster, a number, and its target behind an @
// if there are several.
type limitScript struct {
	*callLimit
	calls, window int // of a target
	gates         map[string]*gate
	permits       map[string]*callPermit
}

// do does one step, and returns the calls that start at each name, by name.
func (s *limitScript) do(step string) string {
	verb, rest, _ := strings.Cut(step, " ")
	var started []string
	for _, name := range strings.Fields(rest) {
		waiting := s.waiting()
		s.one(verb, name)
		if verb == "enter" {
			waiting = []string{name}
		}
		for _, name := range waiting {
			if isInFlight(s.permits[name]) {
				started = append(started, name)
			}
		}
	}
	if verb == "failed" {
		s.failed(&callPermit{gate: s.gate("")})
	}
	return strings.Join(started, " ")
}

func (s *limitScript) one(verb, name string) {
	p := s.permits[name]
	switch verb {
	case "enter":
		call, target, _ := strings.Cut(name, "@")
		p = &callPermit{cluster: strings.TrimRight(call, "0123456789"), gate: s.gate(target)}
		s.permits[name] = p
		s.enter(p)
	case "made":
		s.connected(p, true)
	case "reused":
		s.connected(p, false)
	case "leave":
		s.leave(p)
	default:
		panic("no such step: " + verb)
	}
}

// waiting has the names of the calls that wait, sorted.
func (s *limitScript) waiting() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.permits)) {
		if s.permits[name].state == permitWaiting {
			names = append(names, name)
		}
	}
	return names
}

func (s *limitScript) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		made := newGate(s.calls, s.window)
		g = &made
		s.gates[name] = g
	}
	return g
}

func isInFlight(p *callPermit) bool { return p.state == permitConnecting || p.state == permitConnected }

func TestCallLimit(t *testing.T) {
	for name, test := range map[string]struct {
		calls, window, all int
		steps              [][2]string // and which calls start
	}{
		"a cluster leaves a quarter free": {4, 4, 0, [][2]string{
			{"enter a1 a2 a3 a4 a5", "a1 a2 a3"},
			{"enter b1 b2", "b1"}, // its first one
			{"leave a1", "a4"},
			{"leave a2", "b2"},
			{"leave a3", "a5"},
		}},
		"the lines are served in turn, each in its order": {1, 1, 0, [][2]string{
			{"enter a1 a2 a3 b1 c1 c2", "a1"},
			{"leave a1", "a2"}, {"leave a2", "b1"}, {"leave b1", "c1"}, {"leave c1", "a3"}, {"leave a3", "c2"},
		}},
		"a call that waits and leaves is not missed": {1, 1, 0, [][2]string{
			{"enter a1 a2 a3 b1", "a1"},
			{"leave a2 b1", ""},
			{"leave b1", ""}, // once more
			{"leave a1", "a3"},
		}},
		"a flood waits behind a target that does not connect": {32, 4, 0, [][2]string{
			{"enter a1 a2 a3 a4 a5 a6", "a1 a2 a3"},
			{"enter b1 b2", "b1"},
			{"failed", ""},
			{"leave a1", "a4"},
			{"leave a2", "b2"},
			{"failed", ""},
			{"leave a3", "a5"},
		}},
		"each connection that is made lets one more connect": {32, 2, 0, [][2]string{
			{"enter a1 a2 a3 a4 a5 a6 a7 a8", "a1 a2"},
			{"made a1", "a3 a4"},
			{"made a2", "a5"},
			{"made a2", ""}, // is known
			{"made a3 a4 a5", "a6 a7 a8"},
		}},
		"a connection that is used again lets another one take its place": {32, 2, 0, [][2]string{
			{"enter a1 a2 a3 a4 a5", "a1 a2"},
			{"reused a1", "a3"},
			{"reused a2", "a4"},
			{"leave a1 a2", ""},
			{"leave a3", "a5"},
		}},
		"so many are under way in all": {4, 4, 0, [][2]string{
			{"enter a1 a2 a3 b1 c1", "a1 a2 a3 b1"},
			{"made a1 a2 a3 b1", ""},
			{"leave a1", "c1"},
		}},
		"a call that waits for other calls of its cluster holds no place at its target": {4, 1, 4, [][2]string{
			{"enter a1@x", "a1@x"},
			{"made a1@x", ""},
			{"enter a2@x", "a2@x"},
			{"made a2@x", ""},
			{"enter a3@x a4@y", "a3@x"}, // three quarters of all
			{"enter b1@y b2@y", "b1@y"},
			{"leave a3@x", ""}, // a4 may start now, but b1 is connecting
			{"made b1@y", "a4@y"},
			{"leave a4@y", "b2@y"},
		}},
		"a call that does not connect takes none of the other places of its cluster": {4, 1, 4, [][2]string{
			{"enter a1@x a2@x a3@x", "a1@x"},
			{"enter a4@y", "a4@y"},
			{"leave a1@x", "a2@x"},
		}},
		"the targets of a cluster take turns": {4, 4, 1, [][2]string{
			{"enter a1@x a2@x a3@x a4@y a5@y", "a1@x"},
			{"leave a1@x", "a2@x"}, {"leave a2@x", "a4@y"}, {"leave a4@y", "a3@x"}, {"leave a3@x", "a5@y"},
		}},
		"the next call of a line is served in place of one that leaves": {4, 4, 1, [][2]string{
			{"enter a1@x a2@y a3@y b1@z", "a1@x"},
			{"leave a2@y", ""},
			{"leave b1@z", ""},
			{"leave a1@x", "a3@y"},
		}},
		"clusters take turns at the places of all": {4, 4, 1, [][2]string{
			{"enter a1@x a2@x a3@y b1@x c1@z", "a1@x"},
			{"leave a1@x", "a2@x"}, {"leave a2@x", "b1@x"}, {"leave b1@x", "c1@z"}, {"leave c1@z", "a3@y"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &limitScript{
				callLimit: newCallLimit(cmp.Or(test.all, 1000), 0), calls: test.calls, window: test.window,
				gates: make(map[string]*gate), permits: make(map[string]*callPermit),
			}
			for _, step := range test.steps {
				if got := s.do(step[0]); got != step[1] {
					t.Fatalf("%s: started %q, want %q", step[0], got, step[1])
				}
			}
		})
	}
}

func TestAFailureToConnectMakesTheWindowSmall(t *testing.T) {
	l, g := newCallLimit(1024, 0), newGate(1024, maxConnecting)
	for range 100 {
		p := &callPermit{cluster: "a", gate: &g}
		l.enter(p)
		l.connected(p, true)
	}
	if n := g.connecting.Limit(); n != maxConnecting+100 {
		t.Errorf("%d may connect at a time", n)
	}
	l.failed(&callPermit{gate: &g})
	if n := g.connecting.Limit(); n != maxConnecting {
		t.Errorf("after a failure %d may", n)
	}
	narrow := newGate(2, maxConnecting)
	l.failed(&callPermit{gate: &narrow})
	if n := narrow.connecting.Limit(); n != 2 {
		t.Errorf("of 2 calls %d may", n)
	}
}

// limitModel is a second, naive account of the calls at a callLimit.
type limitModel struct {
	t     *testing.T
	limit *callLimit
	gates []*gate
	here  []*callPermit              // in the order of arrival
	line  map[gateLine][]*callPermit // those that wait
}

// gateLine names the line of a cluster at a gate.
type gateLine struct {
	gate    *gate
	cluster string
}

func lineOf(p *callPermit) gateLine { return gateLine{p.gate, p.cluster} }

// step does something at random.
func (m *limitModel) step(r *rand.Rand, clusters int) {
	if what := r.IntN(8); what < 3 || len(m.here) == 0 {
		p := &callPermit{cluster: fmt.Sprint("c", r.IntN(clusters)), gate: m.gates[r.IntN(len(m.gates))]}
		m.here = append(m.here, p)
		if !m.limit.enter(p) {
			m.line[lineOf(p)] = append(m.line[lineOf(p)], p)
		}
	} else {
		i := r.IntN(len(m.here))
		p := m.here[i]
		switch {
		case what == 3:
			m.limit.failed(p)
		case what < 6:
			m.limit.connected(p, r.IntN(2) == 0)
		default:
			m.here = slices.Delete(m.here, i, i+1)
			m.line[lineOf(p)] = slices.DeleteFunc(m.line[lineOf(p)], func(q *callPermit) bool { return q == p })
			m.limit.leave(p)
		}
	}
	m.takeStarted()
	m.check()
}

// takeStarted takes the calls out of the lines that have started: they are the first of each.
func (m *limitModel) takeStarted() {
	for of, line := range m.line {
		n := 0
		for n < len(line) && isInFlight(line[n]) {
			<-line[n].started
			n++
		}
		if slices.ContainsFunc(line[n:], isInFlight) {
			m.t.Fatal("a call started that was not the first of its line")
		}
		m.line[of] = line[n:]
	}
}

// countOf counts calls in flight by cluster.
func countOf(here []*callPermit, of func(*callPermit) bool) (byCluster map[string]int, all int) {
	byCluster = make(map[string]int)
	for _, p := range here {
		if isInFlight(p) && of(p) {
			byCluster[p.cluster]++
			all++
		}
	}
	return byCluster, all
}

// check checks the invariants.
func (m *limitModel) check() {
	m.booked("of all", &m.limit.slots, func(*callPermit) bool { return true })
	for i, g := range m.gates {
		m.booked(fmt.Sprint("under way to ", i), &g.slots, func(p *callPermit) bool { return p.gate == g })
		m.booked(fmt.Sprint("connecting to ", i), &g.connecting, func(p *callPermit) bool {
			return p.gate == g && p.state == permitConnecting
		})
		waiting := 0
		for of, line := range m.line {
			if of.gate == g {
				waiting += len(line)
			}
		}
		if g.waiting.Len() != waiting {
			m.t.Fatalf("%d calls wait for target %d, want %d", g.waiting.Len(), i, waiting)
		}
	}
	parked := 0
	for of, line := range m.line {
		for i, p := range line {
			if p.parked != nil {
				parked++
			}
			if p.parked != nil && i > 0 {
				m.t.Fatal("a call is parked that is not the first of its line")
			}
		}
		if len(line) > 0 && of.gate.allows(of.cluster) && m.limit.slots.Allows(of.cluster) {
			m.t.Fatalf("a call of %s waits that could start", of.cluster)
		}
	}
	if m.limit.parked.Len() != parked {
		m.t.Fatalf("%d calls are parked, want %d", m.limit.parked.Len(), parked)
	}
}

// booked compares shares with the calls that hold a place in them.
func (m *limitModel) booked(what string, in *fairqueue.Shares, of func(*callPermit) bool) {
	byCluster, all := countOf(m.here, of)
	if in.Used() != all {
		m.t.Fatalf("%s: %d are booked, want %d", what, in.Used(), all)
	}
	for cluster, n := range byCluster {
		if in.Held(cluster) != n {
			m.t.Fatalf("%s: %d of %s are booked, want %d", what, in.Held(cluster), cluster, n)
		}
	}
}

func TestACallLimitIsFairAndLosesNoSlot(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &limitModel{t: t, limit: newCallLimit(1+r.IntN(60), 0), line: make(map[gateLine][]*callPermit)}
		for range 1 + r.IntN(4) {
			g := newGate(1+r.IntN(40), 1+r.IntN(40))
			m.gates = append(m.gates, &g)
		}
		clusters := 1 + r.IntN(6)
		for range 200 {
			m.step(r, clusters)
		}
		for _, p := range m.here {
			m.limit.leave(p)
			m.limit.leave(p) // does nothing
		}
		m.here, m.line = nil, nil
		m.check()
	}
}
