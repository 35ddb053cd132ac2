package outbound

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// gateScript does to a gate what the steps of a scenario say. A call has the name of its cluster and a number.
type gateScript struct {
	gate
	passes map[string]*pass
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
		s.failed()
	}
	return strings.Join(started, " ")
}

func (s *gateScript) one(verb, name string) []*pass {
	p := s.passes[name]
	switch verb {
	case "enter":
		p = &pass{cluster: strings.TrimRight(name, "0123456789")}
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
		calls, window int
		steps         [][2]string // and which calls start
	}{
		"a cluster leaves a quarter free": {4, 4, [][2]string{
			{"enter a1 a2 a3 a4 a5", "a1 a2 a3"},
			{"enter b1 b2", "b1"}, // its first one
			{"leave a1", "a4"},
			{"leave a2", "b2"},
			{"leave a3", "a5"},
		}},
		"the lines are served in turn, each in its order": {1, 1, [][2]string{
			{"enter a1 a2 a3 b1 c1 c2", "a1"},
			{"leave a1", "a2"}, {"leave a2", "b1"}, {"leave b1", "c1"}, {"leave c1", "a3"}, {"leave a3", "c2"},
		}},
		"a call that waits and leaves is not missed": {1, 1, [][2]string{
			{"enter a1 a2 a3 b1", "a1"},
			{"leave a2 b1", ""},
			{"leave b1", ""}, // once more
			{"leave a1", "a3"},
		}},
		"a flood waits behind a target that does not connect": {32, 4, [][2]string{
			{"enter a1 a2 a3 a4 a5 a6", "a1 a2 a3"},
			{"enter b1 b2", "b1"},
			{"failed", ""},
			{"leave a1", "a4"},
			{"leave a2", "b2"},
			{"failed", ""},
			{"leave a3", "a5"},
		}},
		"each connection that is made lets one more connect": {32, 2, [][2]string{
			{"enter a1 a2 a3 a4 a5 a6 a7 a8", "a1 a2"},
			{"made a1", "a3 a4"},
			{"made a2", "a5"},
			{"made a2", ""}, // is known
			{"made a3 a4 a5", "a6 a7 a8"},
		}},
		"a connection that is used again lets another one take its place": {32, 2, [][2]string{
			{"enter a1 a2 a3 a4 a5", "a1 a2"},
			{"reused a1", "a3"},
			{"reused a2", "a4"},
			{"leave a1 a2", ""},
			{"leave a3", "a5"},
		}},
		"so many are under way in all": {4, 4, [][2]string{
			{"enter a1 a2 a3 b1 c1", "a1 a2 a3 b1"},
			{"made a1 a2 a3 b1", ""},
			{"leave a1", "c1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &gateScript{newGate(test.calls, test.window), make(map[string]*pass)}
			for _, step := range test.steps {
				if got := s.do(step[0]); got != step[1] {
					t.Fatalf("%s: started %q, want %q", step[0], got, step[1])
				}
			}
		})
	}
}

func TestAFailureToConnectMakesTheWindowSmall(t *testing.T) {
	g := newGate(1024, MaxConnecting)
	for range 100 {
		p := &pass{cluster: "a"}
		g.enter(p)
		g.connected(p, true)
	}
	if n := g.connecting.Limit(); n != MaxConnecting+100 {
		t.Errorf("%d may connect at a time", n)
	}
	g.failed()
	if n := g.connecting.Limit(); n != MaxConnecting {
		t.Errorf("after a failure %d may", n)
	}
	narrow := newGate(2, MaxConnecting)
	narrow.failed()
	if n := narrow.connecting.Limit(); n != 2 {
		t.Errorf("of 2 calls %d may", n)
	}
}

// gateModel is a second, naive account of the calls at a gate.
type gateModel struct {
	t    *testing.T
	gate gate
	here []*pass            // in the order of arrival
	line map[string][]*pass // those that wait, by cluster
}

// step does something at random.
func (m *gateModel) step(r *rand.Rand, clusters int) {
	var started []*pass
	if what := r.IntN(8); what < 3 || len(m.here) == 0 {
		p := &pass{cluster: fmt.Sprint("c", r.IntN(clusters))}
		m.here = append(m.here, p)
		if !m.gate.enter(p) {
			m.line[p.cluster] = append(m.line[p.cluster], p)
		}
	} else {
		i := r.IntN(len(m.here))
		p := m.here[i]
		switch {
		case what == 3:
			m.gate.failed()
		case what < 6:
			started = m.gate.connected(p, r.IntN(2) == 0)
		default:
			m.here = slices.Delete(m.here, i, i+1)
			m.line[p.cluster] = slices.DeleteFunc(m.line[p.cluster], func(q *pass) bool { return q == p })
			started = m.gate.leave(p)
		}
	}
	for _, p := range started {
		if line := m.line[p.cluster]; len(line) == 0 || line[0] != p {
			m.t.Fatal("a call started that was not the first of its line")
		}
		m.line[p.cluster] = m.line[p.cluster][1:]
	}
	m.check()
}

// check looks for what may never be.
func (m *gateModel) check() {
	underWay, connecting := make(map[string]int), make(map[string]int)
	var all, unconnected, waiting int
	for _, p := range m.here {
		switch p.state {
		case passConnecting:
			connecting[p.cluster]++
			unconnected++
			underWay[p.cluster]++
			all++
		case passConnected:
			underWay[p.cluster]++
			all++
		case passWaiting:
			waiting++
		case passOutside:
			m.t.Fatal("a call that is here is outside")
		}
	}
	g := &m.gate
	if g.slots.Used() != all || g.connecting.Used() != unconnected || g.waiting.Len() != waiting || all > g.slots.Limit() {
		m.t.Fatalf("booked: %d under way, %d connecting, %d waiting; there are %d, %d and %d",
			g.slots.Used(), g.connecting.Used(), g.waiting.Len(), all, unconnected, waiting)
	}
	for cluster, line := range m.line {
		if g.slots.Held(cluster) != underWay[cluster] || g.connecting.Held(cluster) != connecting[cluster] {
			m.t.Fatalf("%s is booked with %d and %d", cluster, g.slots.Held(cluster), g.connecting.Held(cluster))
		}
		if g.waiting.LenOf(cluster) != len(line) {
			m.t.Fatalf("%d calls of %s wait, want %d", g.waiting.LenOf(cluster), cluster, len(line))
		}
		room := !g.slots.Full() && !g.connecting.Full()
		if len(line) > 0 && room && connecting[cluster] == 0 && underWay[cluster] == 0 {
			m.t.Fatalf("there is room, and %s, which has nothing under way, waits", cluster)
		}
		if len(line) > 0 && g.slots.Allows(cluster) && g.connecting.Allows(cluster) {
			m.t.Fatalf("a call of %s waits that could start", cluster)
		}
	}
}

func TestAGateIsFairAndLosesNoSlot(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &gateModel{t: t, gate: newGate(1+r.IntN(40), 1+r.IntN(40)), line: make(map[string][]*pass)}
		clusters := 1 + r.IntN(6)
		for range 500 {
			m.step(r, clusters)
		}
		for _, p := range m.here {
			m.gate.leave(p)
			m.gate.leave(p) // says nothing more
		}
		g := &m.gate
		if g.slots.Used() != 0 || g.connecting.Used() != 0 || g.waiting.Len() != 0 {
			t.Fatalf("seed %d: left are %d under way, %d connecting, %d waiting", seed, g.slots.Used(), g.connecting.Used(), g.waiting.Len())
		}
	}
}
