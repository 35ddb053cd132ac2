package session

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// waitingTicket is a ticket of a cluster.
func waitingTicket(cluster string) *ticket {
	return &ticket{batch: &dispatcher.Batch{
		Request: &admissionv1.AdmissionRequest{Cluster: cluster}, Calls: make([]dispatcher.Call, 1),
	}}
}

// queueWorld is a queue and the names of what waits in it: the first letter is the cluster.
type queueWorld struct {
	queue   queue
	tickets map[string]*ticket
	names   map[*ticket]string
}

func newQueueWorld(names ...string) *queueWorld {
	w := &queueWorld{tickets: map[string]*ticket{}, names: map[*ticket]string{}}
	for _, name := range names {
		w.push(name)
	}
	return w
}

func (w *queueWorld) push(name string) (first bool) {
	k := waitingTicket(name[:1])
	w.tickets[name], w.names[k] = k, name
	return w.queue.push(k)
}

// serve seats at most n calls, of some clusters only, and returns them in order.
func (w *queueWorld) serve(n int, clusters string) string {
	var served []string
	w.queue.serve(func() bool { return len(served) < n }, func(k *ticket) bool {
		if !strings.Contains(clusters, k.cluster()) {
			return false
		}
		served = append(served, w.names[k])
		return true
	})
	return strings.Join(served, " ")
}

func TestClustersAreServedInTurn(t *testing.T) {
	for _, test := range []struct {
		name  string
		waits string
		steps []string // how many, the clusters that have a seat, what is served
	}{
		{"a flood leaves the others first in turn", "a1 a2 a3 a4 b1 c1", []string{"4:abc:a1 b1 c1 a2", "9:abc:a3 a4"}},
		{"the turn goes on where it was", "a1 a2 b1 b2", []string{"1:ab:a1", "1:ab:b1", "1:ab:a2", "1:ab:b2"}},
		{"the oldest of a cluster is first", "a1 b1 a2 b2 b3", []string{"9:ab:a1 b1 a2 b2 b3"}},
		{"who finds no seat keeps the turn", "a1 b1 b2 b3", []string{"2:b:b1 b2", "2:ab:a1 b3"}},
		{"nobody finds a seat", "a1 b1", []string{"2:c:", "2:ab:a1 b1"}},
		{"no room", "a1", []string{"0:a:", "1:a:a1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newQueueWorld(strings.Fields(test.waits)...)
			for _, step := range test.steps {
				part := strings.Split(step, ":")
				var n int
				if _, err := fmt.Sscan(part[0], &n); err != nil {
					t.Fatal(err)
				}
				if got := w.serve(n, part[1]); got != part[2] {
					t.Errorf("%s: served %q", step, got)
				}
			}
		})
	}
}

func TestWhoIsTakenOutOfTheQueueLosesNobodysTurn(t *testing.T) {
	w := newQueueWorld("a1", "a2", "b1", "c1")
	w.queue.remove(w.tickets["b1"])
	w.queue.remove(w.tickets["a1"])
	if w.push("a3") || !w.push("b2") {
		t.Error("first is who finds nobody of its cluster")
	}
	if got := w.serve(9, "abc"); got != "a2 c1 b2 a3" {
		t.Errorf("served %q", got)
	}
	if w.queue.n != 0 || len(w.queue.lines) != 0 || w.queue.turns.Len() != 0 {
		t.Errorf("left over: %d calls, %d lines, %d turns", w.queue.n, len(w.queue.lines), w.queue.turns.Len())
	}
}

func TestALineIsAsLongAsTheRoomThatIsLeft(t *testing.T) {
	var q queue
	fill := func(cluster string) (n int) {
		for ; !q.full(cluster); n++ {
			q.push(waitingTicket(cluster))
		}
		return n
	}
	if n := fill("a"); n != MaxWaiting/2 {
		t.Errorf("one cluster has %d calls, want half of %d", n, MaxWaiting)
	}
	if n := fill("b"); n != MaxWaiting/4 {
		t.Errorf("the next one has %d", n)
	}
	for i := range MaxWaiting {
		if fill(fmt.Sprint(i)) == 0 {
			break
		}
	}
	if q.n > MaxWaiting || q.n < MaxWaiting-1 {
		t.Errorf("%d calls wait, at most %d may", q.n, MaxWaiting)
	}
}

// TestWhoeverWaitsIsServedBeforeAnotherClusterIsTwice plays random queues.
func TestWhoeverWaitsIsServedBeforeAnotherClusterIsTwice(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for round := range 300 {
		w := newQueueWorld()
		waits, order := map[string]int{}, map[string][]string{}
		since := map[string]map[string]int{} // by who waits: what others were given meanwhile
		for step := range 200 {
			cluster := string("abcd"[random.IntN(4)])
			if random.IntN(2) == 0 {
				name := fmt.Sprintf("%s%d", cluster, step)
				if first := w.push(name); first != (waits[cluster] == 0) {
					t.Fatalf("round %d: %s is first: %t", round, name, first)
				}
				if waits[cluster]++; waits[cluster] == 1 {
					since[cluster] = map[string]int{}
				}
				order[cluster] = append(order[cluster], name)
				continue
			}
			name := w.serve(1, "abcd")
			if name == "" {
				continue
			}
			cluster = name[:1]
			if order[cluster][0] != name {
				t.Fatalf("round %d: %s is served before %s", round, name, order[cluster][0])
			}
			order[cluster] = order[cluster][1:]
			waits[cluster]--
			since[cluster] = map[string]int{}
			for other, n := range waits {
				if n > 0 && other != cluster {
					if since[other][cluster]++; since[other][cluster] > 1 {
						t.Fatalf("round %d: %s was served twice while %s waited", round, cluster, other)
					}
				}
			}
		}
	}
}

func TestTheFloodOfAClusterIsNoOverloadForTheOthers(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		ended := make(chan string, MaxWaiting)
		call := func(cluster string) func(int) {
			batch := m.call()
			batch.Request = &admissionv1.AdmissionRequest{Cluster: cluster}
			return m.registry.Start(t.Context(), batch, func(_ int, r review.Result) {
				how := "allowed"
				if r.Failure != nil {
					how = r.Failure.Kind.String()
				}
				ended <- cluster + " " + how
			})
		}
		want := func(how string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-ended:
				if got != how {
					t.Errorf("%s, want %s", got, how)
				}
			default:
				t.Errorf("nothing ended, want %s", how)
			}
		}
		var flood []func(int)
		for range 1 + MaxWaiting/2 { // one is on the host
			flood = append(flood, call("loud"))
		}
		call("loud")
		want("loud overload")
		call("quiet")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("quiet allowed")
		for _, cancel := range flood {
			cancel(0)
		}
		h.allow(h.review(), 0)
	})
}
