package conformance_test

import (
	"fmt"
	"syscall"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// creditCases are about how many calls a host takes at a time.
func creditCases() []testCase {
	return []testCase{{
		name:    "credit-edge",
		asks:    "A host starts as many handlers as it has announced, and refuses the call behind them as overloaded.",
		why:     "calls wait in one host while others are free, or a host breaks down under load",
		section: "credit",
		play: func(s *stage) {
			const most = 4
			p, at := s.host(settings{MaxOutstanding: most})
			for round := range 3 {
				hold := fmt.Sprint(round)
				id := at.post(pod(fmt.Sprintf(`{"hold": %q}`, hold)), call(validating), call(mutating), call(validating), call(mutating), call(validating), call(mutating))
				refused(s, at.verdict(id, most), "overloaded")
				refused(s, at.verdict(id, most+1), "overloaded")
				p.happened("called", "", most*(round+1))
				refused(s, at.ask(pod(`{}`), call(validating)), "overloaded")
				for hook := range uint32(most) {
					at.none(id, hook)
				}
				p.release(hold)
				for hook := range uint32(most) {
					allowed(s, at.verdict(id, hook))
				}
			}
			at.works() // The verdict alone has freed the slots.
		},
	}, {
		name:    "credit-divided",
		asks:    "A host divides what it takes over its sessions, and says so by Credit when sessions come and go.",
		why:     "several dispatchers together send more than the host can do at once, or one that is gone keeps its share",
		section: "credit",
		play: func(s *stage) {
			const most = 10
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}, MaxOutstanding: most})
			first, second := one.accept(), two.accept()
			first.creditBecomes(most / 2)
			second.creditBecomes(most / 2)
			for _, at := range []*session{first, second} {
				for range most / 2 {
					at.post(pod(`{"hold": "x"}`), call(validating))
				}
			}
			p.happened("called", validating, most)
			p.release("x")
			first.answered(most / 2)
			second.answered(most / 2)
			two.kill()
			first.creditBecomes(most)
			first.works()
		},
	}, {
		name:    "credit-sum",
		asks:    "A host runs no more handlers at a time than its author has said, also while shares change.",
		why:     "a host breaks down when a dispatcher comes or goes",
		section: "credit",
		play: func(s *stage) {
			const most = 6
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			two.kill() // It comes when the first one has been told the whole.
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}, MaxOutstanding: most})
			first := one.accept()
			first.creditBecomes(most)
			two = s.dispatcher(scriptedOptions{addr: two.addr})
			second := two.accept()
			first.creditBecomes(most / 2)
			second.creditBecomes(most / 2)
			var ids []uint64 // on both sessions
			for range most {
				ids = append(ids, first.post(pod(`{"hold": "x"}`), call(validating)))
				second.post(pod(`{"hold": "x"}`), call(validating))
			}
			p.happened("called", validating, most)
			first.ping()
			second.ping()
			s.pass(200 * time.Millisecond) // A handler too many would have started.
			equal(s, "number of handlers that run", count(p.events.all(), "called", ""), most)
			p.release("x")
			for at, told := range map[*session]int{first: most, second: most / 2} {
				at.answered(most)
				for _, id := range ids[:told] { // A dispatcher that has not read the Credit yet may send as many.
					allowed(s, at.verdict(id, 0))
				}
			}
		},
	}}
}

// frameCases are about frames with several reviews, and reviews in several frames.
func frameCases() []testCase {
	return []testCase{{
		name:    "batch-of-reviews",
		asks:    "A host judges each review of a Reviews frame as if it had come alone.",
		why:     "reviews are lost under load, when they come together",
		section: "batches",
		play: func(s *stage) {
			p, at := s.host(settings{})
			var reviews []*hostv1.Review
			for i := range 64 {
				reviews = append(reviews, at.newReview(pod(fmt.Sprintf(`{"hold": "x", "audit": {"n": "%d"}}`, i)), call(validating)))
			}
			at.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: &hostv1.Reviews{Reviews: reviews}}})
			p.happened("called", validating, 64)
			p.release("x")
			for i, r := range reviews {
				equal(s, "audit annotation", allowed(s, at.verdict(r.GetCallId(), 0)).GetAuditAnnotations()["n"], fmt.Sprint(i))
			}
			at.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: &hostv1.Reviews{}}})
			at.works()
		},
	}, {
		name:    "batch-of-verdicts",
		asks:    "A frame with verdicts has 64 of them and 64 KiB at most, and a verdict waits for no other.",
		why:     "frames that are too large end the session, and waiting is latency of every write",
		section: "batches",
		play: func(s *stage) {
			const calls = 300
			p, at := s.host(settings{MaxOutstanding: calls + 1}, func(w *hostv1.Welcome) { w.MaxVerdictBytes = 32 << 10 })
			for i := range calls {
				at.post(pod(fmt.Sprintf(`{"hold": "x", "audit": {"n": "%0*d"}}`, 10*(i%100)+1, i)), call(validating))
			}
			at.asksWorks(mutating) // A host that waits for more verdicts waits for ever.
			p.happened("called", validating, calls)
			p.release("x")
			at.answered(calls + 1) // session.note checks the sizes of all frames.
		},
	}, {
		name:    "chunks",
		asks:    "A review in chunks is whole with its last byte; other frames pass between its chunks.",
		why:     "a large object holds up small ones, pings and cancellations",
		section: "chunks",
		play: func(s *stage) {
			p, at := s.host(settings{})
			large := padded(s, at.newReview(pod(`{"echo": true}`), call(validating), call(mutating)), 1<<20)
			for i, frame := range chunksOf(s, large, 64<<10) {
				if i == 1 || i == 8 {
					at.asksWorks(mutating)
					at.ping()
				}
				at.none(large.GetCallId(), 0)
				at.send(frame)
			}
			for hook := range uint32(2) {
				seen := allowed(s, at.verdict(large.GetCallId(), hook)).GetAuditAnnotations()
				equal(s, "digest of the object", seen["object-sha256"], digest(string(large.GetRequest().GetObject().GetRaw())))
			}
			p.happened("called", validating, 1)
			// Uneven chunks, and a chunk of a single byte.
			next := padded(s, at.newReview(pod(`{}`), call(validating)), 200_001)
			at.sendAll(chunksOf(s, next, 100_000))
			allowed(s, at.verdict(next.GetCallId(), 0))
			small := at.newReview(pod(`{}`), call(validating))
			at.sendAll(chunksOf(s, small, 1<<10))
			allowed(s, at.verdict(small.GetCallId(), 0))
		},
	}, {
		name:    "chunks-deadline",
		asks:    "The time of a review in chunks counts from its first chunk.",
		why:     "handlers on slow links work for callers that wait no longer",
		section: "chunks",
		play: func(s *stage) {
			_, at := s.host(settings{})
			r := padded(s, at.newReview(pod(`{"echo": true}`), call(validating)), 150_000)
			frames := chunksOf(s, r, 64<<10)
			at.send(frames[0])
			at.ping()
			s.pass(500 * time.Millisecond)
			at.sendAll(frames[1:])
			var left int64
			_, _ = fmt.Sscan(allowed(s, at.verdict(r.GetCallId(), 0)).GetAuditAnnotations()["remaining-ms"], &left)
			if most := (longTime - 490*time.Millisecond).Milliseconds(); left > most || left <= 0 {
				s.Errorf("the handler had %d ms, want %d at most", left, most)
			}
		},
	}, {
		name:    "chunks-cancelled",
		asks:    "A Cancel in the place of missing chunks ends the review: the host answers for each hook, and starts none.",
		why:     "slots stay taken, or the chunks of the next review are taken for those of this one",
		section: "chunks",
		play: func(s *stage) {
			p, at := s.host(settings{})
			for round := range 3 {
				r := padded(s, at.newReview(pod(`{}`), call(validating), call(mutating), call(validating)), 300_000)
				frames := chunksOf(s, r, 64<<10)
				at.sendAll(frames[:1+round])
				at.cancel(r.GetCallId(), [][]uint32{nil, {2, 0, 1}, {0, 0, 1, 2, 5}}[round]...)
				for hook := range uint32(3) {
					cancelled(s, at.verdict(r.GetCallId(), hook))
				}
				next := padded(s, at.newReview(pod(`{}`), call(validating)), 300_000)
				at.sendAll(chunksOf(s, next, 64<<10))
				allowed(s, at.verdict(next.GetCallId(), 0))
			}
			p.handlersCalled(at, 3)
		},
	}, {
		name:    "chunks-cancelled-in-part",
		asks:    "A Cancel of some hooks of a review that is not whole yet is remembered until it is.",
		why:     "the hooks that are still wanted lose their review",
		section: "chunks",
		play: func(s *stage) {
			p, at := s.host(settings{})
			r := padded(s, at.newReview(pod(`{}`), call(validating), call(mutating)), 300_000)
			frames := chunksOf(s, r, 64<<10)
			at.sendAll(frames[:2])
			at.cancel(r.GetCallId(), 0)
			at.ping()
			at.none(r.GetCallId(), 0)
			at.sendAll(frames[2:])
			refused(s, at.verdict(r.GetCallId(), 0), "cancelled before its start")
			allowed(s, at.verdict(r.GetCallId(), 1))
			p.handlersCalled(at, 1)
		},
	}, {
		name:    "largest-review",
		asks:    "A host takes a review of exactly as many bytes as it has announced.",
		why:     "objects that the mesh may send end the session",
		section: "limits",
		play: func(s *stage) {
			_, at := s.host(settings{})
			large := padded(s, at.newReview(pod(`{"echo": true}`), call(validating)), 16<<20)
			at.sendAll(chunksOf(s, large, 64<<10))
			seen := allowed(s, at.verdict(large.GetCallId(), 0)).GetAuditAnnotations()
			equal(s, "digest of the object", seen["object-sha256"], digest(string(large.GetRequest().GetObject().GetRaw())))
			whole := at.newReview(pod(`{}`), call(validating))
			at.sendReview(padded(s, whole, 128<<10-4)) // The frame around it takes 4 bytes.
			allowed(s, at.verdict(whole.GetCallId(), 0))
		},
	}, {
		name:    "review-too-large",
		asks:    "A host ends the session when a review in chunks has one byte more than it has announced, and dials again.",
		why:     "a faulty dispatcher takes the memory of the host",
		section: "limits",
		play: func(s *stage) {
			const most = 300_000
			d, _, at := s.hostOf(settings{MaxFrameBytes: most})
			fits := padded(s, at.newReview(pod(`{}`), call(validating)), most)
			at.sendAll(chunksOf(s, fits, 64<<10))
			allowed(s, at.verdict(fits.GetCallId(), 0))
			tooLarge := padded(s, at.newReview(pod(`{}`), call(validating)), most+1)
			for _, frame := range chunksOf(s, tooLarge, 64<<10) {
				if at.trySendFrame(frame) != nil {
					break // The host has left at once, as it may.
				}
			}
			s.check(nonNil(at.over()))
			at.none(tooLarge.GetCallId(), 0)
			d.accept().works()
		},
	}}
}

// asksWorks is works with a hook that the other calls of the case do not ask.
func (s *session) asksWorks(hook string) {
	s.Helper()
	allowed(s.stage, s.ask(pod(`{}`), call(hook)))
}
