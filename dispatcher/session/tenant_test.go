package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// door is a router with one hook, "a", which identity "host" may serve, and whom it lets in.
type door struct {
	*mesh

	joined int
}

// newDoor returns a router without the goroutine of Run.
func newDoor(t testing.TB) *door {
	t.Helper()
	r, err := New(Options{ID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	return &door{mesh: &mesh{router: r}}
}

// join lets a session of a host in.
func (d *door) join(name string, hello *hostv1.Hello) error {
	return d.joinAs(identity.Named(name), hello)
}

// joinAs is join, for a peer.
func (d *door) joinAs(peer identity.Peer, hello *hostv1.Hello) error {
	d.joined++
	s := newSession(d.router, peer, hello, stream.Options{ID: fmt.Sprint(d.joined), Channel: peer})
	return d.router.addSession(s, pool.OffersOf(hello))
}

// joins lets n sessions in, and returns how many came.
func (d *door) joins(n int, name string) (came int) {
	for i := range n {
		if d.join(name, hello(fmt.Sprint(name, i), "a").GetHello()) != nil {
			return i
		}
	}
	return n
}

func TestAnIdentityLeavesSessionsToOthers(t *testing.T) {
	d := newDoor(t)
	d.t = t
	d.configureFor([]string{"host", "other", "third"}, "c", "a")
	if n := d.joins(MaxSessions, "host"); n != MaxSessions/2 {
		t.Errorf("one identity has %d sessions, want %d", n, MaxSessions/2)
	}
	if err := d.join("host", hello("one more", "a").GetHello()); !errors.Is(err, errTooMany) {
		t.Errorf("its next one: %v", err)
	}
	if n := d.joins(MaxSessions, "other"); n != MaxSessions/4 {
		t.Errorf("another identity has %d sessions, want %d", n, MaxSessions/4)
	}
	if err := d.join("host", hello("host0", "a").GetHello()); err != nil {
		t.Errorf("one that replaces another one: %v", err)
	}
	if n := d.joins(10, "third"); n != 10 {
		t.Errorf("a third one has %d sessions of 10", n)
	}
}

func TestIdentitiesWithoutGrantsHaveAFewSessions(t *testing.T) {
	d := newDoor(t)
	d.t = t
	if n := d.joins(2*MaxUngrantedOfIdentity, "early"); n != 2*MaxUngrantedOfIdentity {
		t.Errorf("%d sessions before the first configuration, which may grant whatever it will", n)
	}
	d.configure("a")
	if err := d.join("early", hello("one more", "a").GetHello()); !errors.Is(err, errTooManyUngranted) {
		t.Errorf("one more of an identity that has too many: %v", err)
	}
	came := 2 * MaxUngrantedOfIdentity
	for i := range MaxUngrantedSessions {
		came += d.joins(MaxUngrantedOfIdentity+1, fmt.Sprint("stranger", i, "-"))
	}
	if came != MaxUngrantedSessions {
		t.Errorf("identities without grants have %d sessions, want %d", came, MaxUngrantedSessions)
	}
	if n := d.joins(1000, "host"); n != 1000 {
		t.Errorf("%d of 1000 sessions of a host that a hook is granted to", n)
	}
	d.configureAs("c", "stranger0-", "a")
	if n := d.router.index.ungranted; n != MaxUngrantedSessions-MaxUngrantedOfIdentity+1000 {
		t.Errorf("%d sessions are counted as ungranted", n)
	}
	if n := d.joins(100, "stranger0-"); n != 100 {
		t.Errorf("%d of 100 sessions, and the hook is granted to it now", n)
	}
}

func TestAHostWithoutGrantsIsLetGo(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.configureAs("c", "other", "a")
		h := m.connect("one", &hostv1.Hello{}, "a", "b")
		stay(UngrantedTimeout-time.Second, h)
		select {
		case err := <-h.ended:
			t.Fatalf("its session ended before its time: %v", err)
		default:
		}
		stay(2*time.Second, h)
		if code := h.end(); code != codes.PermissionDenied {
			t.Errorf("it is told %s", code)
		}
		again := m.connect("one", &hostv1.Hello{}, "a", "b")
		elapse(time.Second)
		m.configure("a")
		if got := again.states(); len(got) != 1 || got[0] != "a IN_ROTATION" {
			t.Errorf("the configuration names it, and it is told %q", got)
		}
		stay(2*UngrantedTimeout, again)
		got := m.review("a")
		again.allow(again.review(), 0)
		got.want("a", "allowed")
		m.configureAs("c", "other", "a")
		stay(UngrantedTimeout-time.Second, again)
		if n := len(m.router.all()); n != 1 {
			t.Errorf("%d sessions, and the grant was taken away less than its time ago", n)
		}
		stay(2*time.Second, again)
		if code := again.end(); code != codes.PermissionDenied {
			t.Errorf("it is told %s", code)
		}
	})
}

// Each session has its minute, whenever another session of its identity has come.
func TestSessionsWithoutGrantsHaveAMinuteEach(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.configureAs("c", "other", "a")
		one := m.connect("one", &hostv1.Hello{}, "a")
		stay(UngrantedTimeout/2, one)
		two := m.connect("two", &hostv1.Hello{}, "a")
		stay(UngrantedTimeout/2+2*time.Second, one, two)
		if one.end() != codes.PermissionDenied || len(m.router.all()) != 1 {
			t.Errorf("%d sessions are left, want that of two", len(m.router.all()))
		}
	})
}

// A removed hook is granted to its hosts for as long as reviews may call it.
func TestARemovedHookIsGrantedWhileItIsServed(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		granted := func() bool { return m.router.hooks.Load().grants(identity.Named("host")) }
		if !granted() {
			t.Error("its hook is granted to nobody")
		}
		m.configureAs("c", "other", "b")
		if !granted() {
			t.Error("not granted, and reviews may call it")
		}
		m.router.UpdateClusters([]string{"east"})
		if !granted() {
			t.Error("not granted any more, since a cluster came")
		}
		elapse(stream.MaxReview + stream.TickInterval)
		synctest.Wait()
		if granted() {
			t.Error("granted, and nobody can call it")
		}
	})
}

// The reason comes over a wire too, behind a drain, with the remedy.
func TestAHostWithoutGrantsReadsWhyItIsLetGo(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.configureAs("c", "other", "a")
		network := bufconn.Listen(1 << 16)
		stop := m.serve(network)
		defer stop()
		h, conn := dialRemote(t, hello("one", "a"), grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }))
		defer conn.Close()
		begun, drained := time.Now(), false
		for {
			f, err := h.stream.Recv()
			if err != nil {
				after := time.Since(begun)
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "spec.hosts") || !drained {
					t.Errorf("it reads %v, behind a drain: %t", err, drained)
				}
				if after < UngrantedTimeout || after > UngrantedTimeout+time.Second {
					t.Errorf("after %s", after)
				}
				return
			}
			if f.GetPing() != nil {
				h.say(pong())
			}
			drained = drained || f.GetDrain() != nil
		}
	})
}

// stay lets hosts answer for a while, if their sessions last.
func stay(d time.Duration, hosts ...*host) {
	for ; d > 0; d -= stream.PingInterval {
		elapse(min(d, stream.PingInterval))
		for _, h := range hosts {
			h.hear()
			h.tell(pong())
		}
	}
}

// largeHello is a Hello with hundreds of long names that no configuration has.
func largeHello(instance string) *hostv1.Hello {
	h := hello(instance).GetHello()
	for i := range 450 {
		name := fmt.Sprintf("%s-%d-%s", instance, i, strings.Repeat("x", 480))
		h.Hooks = append(h.Hooks, &hostv1.HookOffer{Name: name, Stage: admissionv1.Stage_STAGE_VALIDATE})
		h.Clusters = append(h.Clusters, name)
	}
	return h
}

// heldBy is how many bytes each of n sessions keeps.
func heldBy(t testing.TB, n int, hello func(instance string) *hostv1.Hello) float64 {
	t.Helper()
	d := newDoor(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		if err := d.join("host", hello(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range d.router.all() {
		s.Close(io.EOF) // else it keeps its Welcome, which is not written here
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(d)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n)
}

func TestASessionKeepsLittleOfALargeHello(t *testing.T) {
	const most = 32 << 10
	if kept := heldBy(t, 200, largeHello); kept > most {
		t.Errorf("a session keeps %.0f bytes of a Hello of 450 kB, want %d at most", kept, most)
	}
}

// BenchmarkHello measures the memory that a session keeps of an ordinary Hello and of a large one.
func BenchmarkHello(b *testing.B) {
	for name, hello := range map[string]func(string) *hostv1.Hello{
		"ordinary": func(instance string) *hostv1.Hello { return hello(instance, "a").GetHello() },
		"large":    largeHello,
	} {
		b.Run(name, func(b *testing.B) {
			var kept float64
			for b.Loop() {
				kept = heldBy(b, 500, hello)
			}
			b.ReportMetric(kept, "kept-B/session")
		})
	}
}
