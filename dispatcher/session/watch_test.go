package session

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

func TestOnlyTimeBeyondATickBetweenTwoLooksIsMissed(t *testing.T) {
	t.Parallel()
	var w watch
	now := time.Now()
	for i, step := range []struct{ after, missed time.Duration }{
		{0, 0}, // nobody has looked before
		{stream.TickInterval / stream.TickShards, 0},
		{stream.TickInterval, 0},
		{stream.TickInterval + 1, 1},
		{10 * time.Second, 10*time.Second - stream.TickInterval},
		{-time.Second, 0}, // somebody has set the clock
		{stream.TickInterval / stream.TickShards, 0},
	} {
		now = now.Add(step.after)
		turn, missed := w.tick(now)
		if missed != step.missed || turn != (i+1)%stream.TickShards {
			t.Errorf("look %d, after %s: turn %d, missed %s, want %s", i, step.after, turn, missed, step.missed)
		}
	}
}

// TestSessionsAreLookedAtInParts has each of them looked at once in a tick, and no more than their part at a time.
func TestSessionsAreLookedAtInParts(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		const part = 3
		var left *host
		for i := range stream.TickShards * part {
			left = m.connect(fmt.Sprint(i), &hostv1.Hello{}, "a")
		}
		seen := map[*hostSession]int{}
		for turn := range stream.TickShards {
			for _, s := range m.router.shard(turn) {
				seen[s]++
			}
			if n := len(m.router.shard(turn)); n != part {
				t.Errorf("%d sessions in turn %d", n, turn)
			}
		}
		if len(seen) != stream.TickShards*part {
			t.Errorf("%d sessions are looked at", len(seen))
		}
		close(left.in)
		left.end()
		if n := len(m.router.shard((stream.TickShards*part - 1) % stream.TickShards)); n != part-1 {
			t.Errorf("%d sessions are left in a turn", n)
		}
	})
}

// TestHostsThatSayNothingGetOnePingASecond, and no two thirds of them in the same moment.
func TestHostsThatSayNothingGetOnePingASecond(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		hosts := make([]*host, 0, 2*stream.TickShards)
		for i := range cap(hosts) {
			hosts = append(hosts, m.connect(fmt.Sprint(i), &hostv1.Hello{}, "a"))
		}
		pings := map[*host]int{}
		for range 10 * time.Second / (stream.TickInterval / stream.TickShards) {
			elapse(stream.TickInterval / stream.TickShards)
			synctest.Wait()
			now := 0
			for _, h := range hosts {
				if len(h.out) == 0 {
					continue
				}
				ping := decode(t, <-h.out).GetPing()
				now++
				pings[h]++
				h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: ping.GetSeq()}}})
			}
			if now > len(hosts)/stream.TickShards {
				t.Errorf("%d pings in one moment", now)
			}
		}
		for _, h := range hosts {
			if n := pings[h]; n < 9 || n > 11 {
				t.Errorf("%d pings in 10 s", n)
			}
		}
	})
}

// TestADispatcherThatWasStoppedKeepsItsHosts stops a router for a while, as SIGSTOP or a lack of processors does. Its hosts
// answer all calls and pings, which the router reads later.
func TestADispatcherThatWasStoppedKeepsItsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := &mesh{t: t, router: r, server: NewServer(r, nil)}
		m.configure("a")
		h := m.connect("one", &hostv1.Hello{}, "a")
		var w watch
		look := func() {
			now := time.Now()
			turn, missed := w.tick(now)
			if missed > 0 {
				r.discountStall(now, missed)
			}
			r.maintain(now, turn)
			synctest.Wait()
		}
		pass := func(d time.Duration) {
			for range d / (stream.TickInterval / stream.TickShards) {
				elapse(stream.TickInterval / stream.TickShards)
				look()
			}
		}
		pass(stream.PingInterval)
		elapse(time.Minute)
		look()
		if n := len(r.all()); n != 1 {
			t.Fatal("the host was lost because of our own pause")
		}
		if s := r.all()[0]; s.Unresponsive(time.Now()) {
			t.Error("the host gets no new calls because of our own pause")
		}
		pass(stream.HostSilence) // and in this time it is the host who says nothing
		if err := <-h.ended; err == nil || len(r.all()) != 0 {
			t.Errorf("the silent host was kept: %v", err)
		}
		m.server.Wait()
	})
}

// TestARouterTellsHowLongItDidNotRun has a router whose goroutine is kept busy for a second once.
func TestARouterTellsHowLongItDidNotRun(t *testing.T) {
	const often, busy = stream.TickInterval / stream.TickShards, time.Second
	synctest.Test(t, func(t *testing.T) {
		var all []time.Duration
		r, err := New(Options{Beat: func(_ time.Time, since time.Duration) {
			if all = append(all, since); len(all) == 3 {
				elapse(busy)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		elapse(busy + 10*often)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(all) < 5 || all[0] != often || all[3] < busy-often || all[4] > often {
			t.Errorf("told %v", all)
		}
	})
}
