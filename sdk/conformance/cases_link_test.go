package conformance_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// linkCases are about sessions that fall silent or slow, and those that are lost.
func linkCases() []testCase {
	silence := func(d time.Duration) func(w *hostv1.Welcome) {
		return func(w *hostv1.Welcome) { w.SilenceMs = uint32(d.Milliseconds()) }
	}
	return []testCase{{
		name:    "ping",
		asks:    "A host answers Ping with its number while all its handlers are busy.",
		why:     "the mesh gives up the hosts that work hardest",
		section: "signs-of-life",
		play: func(s *stage) {
			const busy = 4
			p, at := s.host(settings{MaxOutstanding: busy})
			for range busy {
				at.post(pod(`{"blockMs": 2000}`), call(validating))
			}
			p.happened("called", "", busy)
			for range 20 {
				at.ping()
			}
			if len(at.verdictOrder()) > 0 {
				s.Error("the answers to pings came behind the verdicts of busy handlers")
			}
			at.answered(busy)
		},
	}, {
		name:    "silent-link",
		asks:    "A host gives a session up after silence_ms without a frame, and dials again.",
		why:     "a replica behind a broken link looks well, and serves nothing",
		section: "signs-of-life",
		play: func(s *stage) {
			const silent = 2 * time.Second
			d := s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{d.addr}})
			at := d.next()
			held := at.newReview(pod(`{"hold": "x"}`), call(validating))
			at.welcome(silence(silent))
			fallSilent := at.live()
			at.sendReview(held)
			p.happened("called", "", 1)
			fallSilent()
			last := time.Now()
			at.ping()
			s.check(nonNil(at.over()))
			if took := time.Since(last); took < silent-20*time.Millisecond {
				s.Errorf("the host left after %s, want %s", took, silent)
			}
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
			d.accept().works()
		},
	}, {
		name:    "every-frame-is-life",
		asks:    "Each frame is a sign of life of the dispatcher, whatever its type.",
		why:     "sessions that work are given up",
		section: "signs-of-life",
		play: func(s *stage) {
			const silent = 2 * time.Second
			_, at := s.host(settings{}, silence(silent))
			for i := range 10 {
				s.pass(silent / 8)
				switch i % 4 {
				case 0:
					s.check(at.trySend(futureFrame()))
				case 1:
					at.hookState(state(at.hello.GetHooks()[0], hostv1.State_STATE_IN_ROTATION))
				case 2:
					at.cancel(1 << 40)
				case 3:
					at.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: 77}}})
				}
			}
			at.lasts()
			at.works()
		},
	}, {
		name:    "half-open-link",
		asks:    "A host whose link passes nothing any more, and stays open, gives it up and dials again.",
		why:     "a firewall that forgets a connection costs the replica",
		section: "signs-of-life",
		play: func(s *stage) {
			d := s.dispatcher(scriptedOptions{})
			link := s.proxy(d.addr)
			s.start(settings{Dispatchers: []string{link.addr}})
			at := d.accept(silence(2 * time.Second))
			at.live()
			at.works()
			link.freeze()
			next := d.accept()
			next.works()
			at.lasts() // The first one still looks open from here.
		},
	}, {
		name:    "slow-link",
		asks:    "A session on a slow link lasts: large reviews arrive whole, and small frames pass between their chunks.",
		why:     "large objects end the sessions of remote hosts",
		section: "signs-of-life",
		play: func(s *stage) {
			d := s.dispatcher(scriptedOptions{})
			link := s.proxy(d.addr)
			link.slow(512 << 10)
			s.start(settings{Dispatchers: []string{link.addr}})
			at := d.accept(silence(5 * time.Second))
			large := padded(s, at.newReview(pod(`{"echo": true}`), call(validating)), 700_000)
			for _, frame := range chunksOf(s, large, 64<<10) {
				at.send(frame)
				at.ping()
			}
			seen := allowed(s, at.verdict(large.GetCallId(), 0)).GetAuditAnnotations()
			equal(s, "digest of the object", seen["object-sha256"], digest(string(large.GetRequest().GetObject().GetRaw())))
			at.lasts()
		},
	}, {
		name:    "dispatcher-does-not-read",
		asks:    "A host reads no more from a dispatcher that does not read from it, and goes on when it does.",
		why:     "answers that cannot be sent take the memory of the host",
		section: "signs-of-life",
		play: func(s *stage) {
			const most = 30_000
			_, at := s.host(settings{})
			at.works()
			filler := strings.Repeat("x", 1500)
			token := <-at.reading
			var sent atomic.Int64
			flooded := make(chan error, 1)
			go func() { // It ends when the session reads again, or ends.
				defer close(flooded)
				for range most {
					r := at.newReview(about(filler), call("x.example.com")) // Each is refused at once.
					raw, err := proto.Marshal(reviewFrame(r))
					if err = errors.Join(err, at.trySend(raw)); err != nil {
						flooded <- err
						return
					}
					sent.Add(1)
				}
			}()
			for last := int64(-1); last < sent.Load(); { // until nothing moves
				last = sent.Load()
				s.pass(time.Second)
			}
			if sent.Load() == most {
				s.Errorf("the host has read %d reviews whose answers nobody reads", most)
			}
			at.reading <- token
			s.check(<-flooded)
			at.answered(most + 1)
			at.works()
		},
	}, {
		name:    "dispatcher-killed",
		asks:    "When a session is lost its handlers are cancelled, and the host dials again until the dispatcher is back.",
		why:     "a dispatcher that restarts finds no hosts, and their slots are taken by calls of its past",
		section: "dialling-again",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{MaxOutstanding: 1})
			at.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			d.kill()
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
			for range 3 {
				d = s.dispatcher(scriptedOptions{addr: d.addr})
				at = d.accept()
				at.works()
				d.kill()
			}
		},
	}, {
		name:    "session-refused-later",
		asks:    "A session that the dispatcher ends is dialled again, whatever the status.",
		why:     "a host is lost to a mesh that works",
		section: "how-a-session-ends",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			for _, code := range []codes.Code{
				codes.OK, codes.Canceled, codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted, codes.Aborted, codes.PermissionDenied,
				codes.Unauthenticated, codes.Unavailable, codes.Internal,
			} {
				at.works()
				at.finish(code, "as the case says")
				at = d.accept()
			}
			at.works()
			p.drain()
			at.closedCleanly()
			p.leftCleanly()
		},
	}}
}

// nonNil wants an error: the host left in another way than behind a drain.
func nonNil(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the host closed its side, as if it had drained")
	}
	return nil
}
