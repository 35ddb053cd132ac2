package outbound

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
)

// gateScript does to a gate what the steps of a scenario say. A call has the name of its cluster, a number, and its target
// behind an @ if there are several.
type gateScript struct {
	gate
	calls, window int // of a target
	targets       map[string]*targetGate
	passes        map[string]*pass
}

// do does one step, and says which calls started.
func (s *gateScript) do(step string) string {
	verb, rest, _ := strings.Cut(step, " ")
	var started []string
	for _, name := range strings.Fields(rest) {
		for _, p := range s.one(verb, name) {
			started = append(started, s.name(p))
		}
	}
	if verb == "failed" {
		s.target("").failed()
	}
	return strings.Join(started, " ")
}

func (s *gateScript) one(verb, name string) []*pass {
	p := s.passes[name]
	switch verb {
	case "enter":
		call, target, _ := strings.Cut(name, "@")
		p = &pass{cluster: strings.TrimRight(call, "0123456789"), target: s.target(target)}
		s.passes[name] = p
		if s.enter(p) {
			return []*pass{p}
		}
		return nil
	case "made":
		return s.connected(p, true)
	case "reused":
		return s.connected(p, false)
	case "leave":
		return s.leave(p)
	}
	panic("no such step: " + verb)
}

func (s *gateScript) target(name string) *targetGate {
	t := s.targets[name]
	if t == nil {
		made := newTargetGate(s.calls, s.window)
		t = &made
		s.targets[name] = t
	}
	return t
}

func (s *gateScript) name(p *pass) string {
	for name, q := range s.passes {
		if q == p {
			return name
		}
	}
	return "?"
}

func TestGate(t *testing.T) {
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
			s := &gateScript{
				gate: newGate(1000), calls: test.calls, window: test.window,
				targets: make(map[string]*targetGate), passes: make(map[string]*pass),
			}
			if test.all > 0 {
				s.gate = newGate(test.all)
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
	g, target := newGate(1024), newTargetGate(1024, MaxConnecting)
	for range 100 {
		p := &pass{cluster: "a", target: &target}
		g.enter(p)
		g.connected(p, true)
	}
	if n := target.connecting.Limit(); n != MaxConnecting+100 {
		t.Errorf("%d may connect at a time", n)
	}
	target.failed()
	if n := target.connecting.Limit(); n != MaxConnecting {
		t.Errorf("after a failure %d may", n)
	}
	narrow := newTargetGate(2, MaxConnecting)
	narrow.failed()
	if n := narrow.connecting.Limit(); n != 2 {
		t.Errorf("of 2 calls %d may", n)
	}
}

// gateModel is a second, naive account of the calls at a gate.
type gateModel struct {
	t       *testing.T
	gate    gate
	targets []*targetGate
	here    []*pass              // in the order of arrival
	line    map[gateLine][]*pass // those that wait
}

// gateLine names the line of a cluster at a target.
type gateLine struct {
	target  *targetGate
	cluster string
}

func lineOf(p *pass) gateLine { return gateLine{p.target, p.cluster} }

// step does something at random.
func (m *gateModel) step(r *rand.Rand, clusters int) {
	var started []*pass
	if what := r.IntN(8); what < 3 || len(m.here) == 0 {
		p := &pass{cluster: fmt.Sprint("c", r.IntN(clusters)), target: m.targets[r.IntN(len(m.targets))]}
		m.here = append(m.here, p)
		if !m.gate.enter(p) {
			m.line[lineOf(p)] = append(m.line[lineOf(p)], p)
		}
	} else {
		i := r.IntN(len(m.here))
		p := m.here[i]
		switch {
		case what == 3:
			p.target.failed()
		case what < 6:
			started = m.gate.connected(p, r.IntN(2) == 0)
		default:
			m.here = slices.Delete(m.here, i, i+1)
			m.line[lineOf(p)] = slices.DeleteFunc(m.line[lineOf(p)], func(q *pass) bool { return q == p })
			started = m.gate.leave(p)
		}
	}
	for _, p := range started {
		if line := m.line[lineOf(p)]; len(line) == 0 || line[0] != p {
			m.t.Fatal("a call started that was not the first of its line")
		}
		m.line[lineOf(p)] = m.line[lineOf(p)][1:]
	}
	m.check()
}

// countOf counts calls under way by cluster.
func countOf(here []*pass, of func(*pass) bool) (byCluster map[string]int, all int) {
	byCluster = make(map[string]int)
	for _, p := range here {
		if (p.state == passConnecting || p.state == passConnected) && of(p) {
			byCluster[p.cluster]++
			all++
		}
	}
	return byCluster, all
}

// check looks for what may never be.
func (m *gateModel) check() {
	m.booked("of all", &m.gate.slots, func(*pass) bool { return true })
	for i, target := range m.targets {
		m.booked(fmt.Sprint("under way to ", i), &target.slots, func(p *pass) bool { return p.target == target })
		m.booked(fmt.Sprint("connecting to ", i), &target.connecting, func(p *pass) bool {
			return p.target == target && p.state == passConnecting
		})
		waiting := 0
		for of, line := range m.line {
			if of.target == target {
				waiting += len(line)
			}
		}
		if target.waiting.Len() != waiting {
			m.t.Fatalf("%d calls wait for target %d, want %d", target.waiting.Len(), i, waiting)
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
		if len(line) > 0 && of.target.allows(of.cluster) && m.gate.slots.Allows(of.cluster) {
			m.t.Fatalf("a call of %s waits that could start", of.cluster)
		}
	}
	if m.gate.parked.Len() != parked {
		m.t.Fatalf("%d calls are parked, want %d", m.gate.parked.Len(), parked)
	}
}

// booked compares shares with the calls that hold a place in them.
func (m *gateModel) booked(what string, in *fairqueue.Shares, of func(*pass) bool) {
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

func TestAGateIsFairAndLosesNoSlot(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &gateModel{t: t, gate: newGate(1 + r.IntN(60)), line: make(map[gateLine][]*pass)}
		for range 1 + r.IntN(4) {
			target := newTargetGate(1+r.IntN(40), 1+r.IntN(40))
			m.targets = append(m.targets, &target)
		}
		clusters := 1 + r.IntN(6)
		for range 200 {
			m.step(r, clusters)
		}
		for _, p := range m.here {
			m.gate.leave(p)
			m.gate.leave(p) // says nothing more
		}
		m.here, m.line = nil, nil
		m.check()
	}
}
