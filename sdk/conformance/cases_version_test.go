package conformance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// futureFrame is a frame of a later contract.
func futureFrame() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "from the future")
}

// future adds fields of a later contract to a message.
func future[M proto.Message](m M) M {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 901, protowire.Fixed64Type), 7)
	unknown = protowire.AppendFixed32(protowire.AppendTag(unknown, 902, protowire.Fixed32Type), 7)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 903, protowire.BytesType), futureFrame())
	m.ProtoReflect().SetUnknown(unknown)
	return m
}

// trySendFrame is send for hosts that may have left.
func (s *session) trySendFrame(frame *hostv1.ConnectResponse) error {
	return s.trySend(must[[]byte](s.stage)(proto.Marshal(frame)))
}

// versionCases are about dispatchers of other versions.
func versionCases() []testCase {
	return []testCase{{
		name:    "newer-dispatcher",
		asks:    "A host ignores frames, fields, capabilities and values that it does not know.",
		why:     "the mesh cannot be upgraded before its hosts",
		section: "versions",
		play: func(s *stage) {
			d := s.dispatcher(scriptedOptions{})
			s.start(settings{Dispatchers: []string{d.addr}})
			at := d.next()
			at.welcome(func(w *hostv1.Welcome) {
				w.Capabilities = append(w.Capabilities, "from-the-future")
				future(w)
				for _, h := range w.Hooks {
					future(h)
				}
			})
			reserved := protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType), []byte{0xff})
			for _, raw := range [][]byte{futureFrame(), {}, reserved, protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)} {
				s.check(at.trySend(raw))
			}
			at.hookState(state(at.hello.GetHooks()[0], 99))
			r := future(at.newReview(future(pod(`{"echo": true}`)), future(call(validating, func(c *hostv1.HookCall) { c.Mode = 99 })),
				call(validating, func(c *hostv1.HookCall) { c.Stage = 99 })))
			future(r.GetRequest().GetObject())
			future(r.GetRequest().GetUserInfo())
			at.send(future(reviewFrame(r)))
			seen := allowed(s, at.verdict(r.GetCallId(), 0)).GetAuditAnnotations()
			equal(s, "username", seen["username"], "jane")
			equal(s, "digest of the object", seen["object-sha256"], digest(string(r.GetRequest().GetObject().GetRaw())))
			refused(s, at.verdict(r.GetCallId(), 1), "unknown hook")
			batch := future(&hostv1.Reviews{Reviews: []*hostv1.Review{future(at.newReview(pod(`{}`), call(validating)))}})
			at.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: batch}})
			allowed(s, at.verdict(batch.GetReviews()[0].GetCallId(), 0))
			for _, frame := range chunksOf(s, at.newReview(pod(`{}`), call(validating)), 50) {
				future(frame.GetChunk())
				at.send(frame)
			}
			at.answered(4)
			at.ping()
			at.lasts()
		},
	}, {
		name:    "older-dispatcher",
		asks:    "To a dispatcher without capabilities a host sends one verdict a frame, and keeps the defaults of limits that are not named.",
		why:     "hosts cannot be upgraded before the mesh",
		section: "versions",
		play: func(s *stage) {
			const calls = 200
			_, at := s.host(settings{MaxOutstanding: calls}, func(w *hostv1.Welcome) {
				hooks := w.GetHooks()
				proto.Reset(w)
				w.SessionId, w.DispatcherId, w.Protocol, w.Hooks = "s", "old", 1, hooks
			})
			for i := range calls {
				at.post(pod(fmt.Sprintf(`{"waitMs": %d, "audit": {"k": "%s"}}`, i%2, strings.Repeat("x", 5000))), call(validating))
			}
			at.answered(calls) // session.note fails on verdicts that come together.
			at.works()
		},
	}, {
		name:    "other-protocol",
		asks:    "A host leaves a dispatcher that chose a protocol outside of its range, and dials again.",
		why:     "the two sides do not mean the same by what they send",
		section: "versions",
		play: func(s *stage) {
			d, _, at := s.hostOf(settings{}, func(w *hostv1.Welcome) { w.Protocol = 2 })
			s.check(nonNil(at.over()))
			d.accept().works()
		},
	}}
}

// hostileCases are about dispatchers that break the contract.
func hostileCases() []testCase {
	ends := func(frames ...func(s *stage, at *session) []byte) func(s *stage) {
		return func(s *stage) {
			d, p, at := s.hostOf(settings{})
			for _, frame := range frames {
				at.works()
				if err := at.trySend(frame(s, at)); err != nil {
					s.Fatal(err)
				}
				s.check(nonNil(at.over()))
				at = d.accept()
			}
			at.works()
			p.drain()
			at.closedCleanly()
			p.leftCleanly()
		}
	}
	return []testCase{{
		name:    "hostile-garbage",
		asks:    "A host ends a session on which a frame cannot be read, and dials again.",
		why:     "a review that was lost keeps its slot, or the host process ends",
		section: "violations",
		play: ends(
			func(*stage, *session) []byte { return []byte("\xff\xff\xff garbage") },
			func(*stage, *session) []byte { return []byte{0x12, 0x7f, 1, 2} }, // a review that ends too soon
			func(s *stage, at *session) []byte { // a review with a hook that is no message
				hook := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{0xff, 0xff})
				return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), hook)
			},
		),
	}, {
		name:    "hostile-repeated-id",
		asks:    "A host ends a session on which the id of a review comes again, while it is live or later.",
		why:     "one verdict answers two questions",
		section: "violations",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			live := at.newReview(pod(`{"hold": "x"}`), call(validating))
			at.sendReview(live)
			p.happened("called", "", 1)
			at.sendReview(live)
			s.check(nonNil(at.over()))
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
			at = d.accept()
			ended := at.newReview(pod(`{}`), call(validating))
			at.sendReview(ended)
			allowed(s, at.verdict(ended.GetCallId(), 0))
			at.sendReview(ended)
			s.check(nonNil(at.over()))
			at = d.accept()
			chunked := padded(s, at.newReview(pod(`{}`), call(validating)), 100_000)
			frames := chunksOf(s, chunked, 64<<10)
			at.sendAll(frames)
			allowed(s, at.verdict(chunked.GetCallId(), 0))
			at.send(frames[0])
			s.check(nonNil(at.over()))
			d.accept().works()
		},
	}, {
		name:    "hostile-chunks",
		asks:    "A host ends a session whose chunks contradict each other or their review, and dials again.",
		why:     "a handler judges an object that was put together of two",
		section: "violations",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			for name, change := range map[string]func(of []*hostv1.Chunk){
				"another total":           func(of []*hostv1.Chunk) { of[1].TotalBytes++ },
				"another number of hooks": func(of []*hostv1.Chunk) { of[1].Hooks++ },
				"another review between":  func(of []*hostv1.Chunk) { of[1].CallId++ },
				"no data":                 func(of []*hostv1.Chunk) { of[1].Data = nil },
				"more than the total":     func(of []*hostv1.Chunk) { of[1].Data = make([]byte, of[1].TotalBytes) },
				"no review":               func(of []*hostv1.Chunk) { of[0].Data[0], of[0].Data[1] = 0xff, 0xff },
				"fewer hooks than said": func(of []*hostv1.Chunk) {
					for _, c := range of {
						c.Hooks = 5
					}
				},
			} {
				r := padded(s, at.newReview(pod(`{}`), call(validating)), 100_000)
				var chunks []*hostv1.Chunk
				for _, frame := range chunksOf(s, r, 64<<10) {
					chunks = append(chunks, frame.GetChunk())
				}
				change(chunks)
				for _, c := range chunks {
					if at.trySendFrame(chunk(c)) != nil {
						break
					}
				}
				if err := nonNil(at.over()); err != nil {
					s.Fatalf("%s: %v", name, err)
				}
				at.none(r.GetCallId(), 0)
				at = d.accept()
				at.works()
			}
			p.handlersCalled(at, 7) // by works
		},
	}, {
		name:    "hostile-promises",
		asks:    "A host takes no memory for bytes that a chunk promises, and takes part of a review for no more than that.",
		why:     "a few frames take the memory of the host",
		section: "violations",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			at.works()
			before := p.rss()
			for range 20 {
				r := at.newReview(nil, call(validating))
				at.send(chunk(&hostv1.Chunk{CallId: r.GetCallId(), TotalBytes: 16 << 20, Hooks: 1, Data: []byte{1}}))
				at.ping()
				at.cancel(r.GetCallId())
				cancelled(s, at.verdict(r.GetCallId(), 0))
			}
			r := at.newReview(nil, call(validating))
			_ = at.trySendFrame(chunk(&hostv1.Chunk{CallId: r.GetCallId(), TotalBytes: math.MaxUint64, Hooks: 1, Data: []byte{1}}))
			s.check(nonNil(at.over()))
			if grown := p.rss() - before; grown > memoryBound() {
				s.Errorf("the host has %d MiB more", grown>>20)
			}
			d.accept().works()
		},
	}, {
		name:    "hostile-too-many-hooks",
		asks:    "A host ends a session on which a review asks more than 65,536 hooks, or a chunk says so.",
		why:     "one frame takes the memory of the host",
		section: "violations",
		play: ends(
			func(s *stage, at *session) []byte {
				r := &hostv1.Review{CallId: 1 << 30, Request: pod(`{}`)}
				for range 65_537 {
					r.Hooks = append(r.Hooks, &hostv1.HookCall{})
				}
				return must[[]byte](s)(proto.Marshal(reviewFrame(r)))
			},
			func(s *stage, at *session) []byte {
				return must[[]byte](s)(proto.Marshal(chunk(&hostv1.Chunk{CallId: 1 << 30, TotalBytes: 100, Hooks: 65_537, Data: []byte{1}})))
			},
		),
	}, {
		name:    "hostile-before-welcome",
		asks:    "A host takes no frame but Welcome first: it ends the session, and dials again.",
		why:     "a dispatcher that has not accepted the host gets verdicts",
		section: "violations",
		play: func(s *stage) {
			d := s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{d.addr}})
			at := d.next()
			at.sendReview(at.newReview(pod(`{}`), call(validating)))
			s.check(nonNil(at.over()))
			p.handlersCalled(d.accept(), 0)
		},
	}, {
		name:    "odd-requests",
		asks:    "A request that is no object, or that cannot be read, is a failure of its own calls alone.",
		why:     "one odd object ends the session, or the host",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			_, at := s.host(settings{})
			for _, raw := range []string{"", "\x00\xff\xfe", "null", "[]", `"text"`, "{", strings.Repeat("[", 100_000), `{"script": 7}`} {
				v := at.ask(about(raw), call(validating))
				if v.GetError() == nil && v.GetResponse() == nil {
					s.Errorf("object %.20q: want a failure or a response, and have %v", raw, v)
				}
			}
			allowed(s, at.ask(&admissionv1.AdmissionRequest{}, call(validating)))
			at.works()
		},
	}}
}

// inRace is a number of things to do, which is smaller under the race detector.
func inRace(n, otherwise int) int {
	if citest.Race {
		return n
	}
	return otherwise
}

// memoryBound is the bound on a host's memory for entries that it has to forget.
func memoryBound() int64 {
	if citest.Race {
		return 512 << 20 // The race detector keeps several times the program's memory.
	}
	return 96 << 20
}

// loadCases are about many calls.
func loadCases() []testCase {
	return []testCase{{
		name:    "ten-thousand-reviews",
		asks:    "A host keeps 10,000 reviews apart, of which 500 are in flight at a time and end in any order.",
		why:     "under load the verdict of one write decides about another",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			const most = 500
			reviews := inRace(2_000, 10_000)
			_, at := s.host(settings{MaxOutstanding: most})
			random := rand.New(rand.NewPCG(1, 2)) // the same each time
			for i := range reviews {
				if i >= most {
					at.answered(i - most + 1)
				}
				at.post(pod(fmt.Sprintf(`{"waitMs": %d, "audit": {"n": "%d"}}`, random.IntN(10), i)), call([]string{validating, mutating}[i%2]))
			}
			at.answered(reviews)
			shuffled := 0
			for i, verdict := range at.verdictOrder() {
				v := at.have(verdict.call, 0)
				if got := v.GetResponse().GetAuditAnnotations()["n"]; got != fmt.Sprint(verdict.call-1) {
					s.Fatalf("the verdict of review %d is that of %s: %v", verdict.call-1, got, v)
				}
				if verdict.call != uint64(i)+1 {
					shuffled++
				}
			}
			equal(s, "some verdicts came out of order", shuffled > 0, true)
			equal(s, "number of verdicts", len(at.verdictOrder()), reviews)
		},
	}, {
		name:    "memory",
		asks:    "A host forgets what it has answered: its memory stays bounded under a flood.",
		why:     "a host is killed after days, in the middle of writes",
		section: "limits",
		play: func(s *stage) {
			p, at := s.host(settings{MaxOutstanding: 16, Validate: []string{validating, "hold.example.com"}})
			filler, large := strings.Repeat("x", 16<<10), about(`{}`+strings.Repeat(" ", 4<<20))
			held := at.post(pod(`{"hold": "x"}`), hooksOf(15, "hold.example.com")...)
			p.happened("called", "hold.example.com", 15)
			answered, reviews, parts := 0, inRace(200, 1000), inRace(2, 8)
			flood := func() {
				for range reviews { // Of these some are refused.
					at.post(pod(fmt.Sprintf(`{"audit": {"k": "v"}, "x": %q}`, filler)), call(validating))
				}
				answered += reviews
				for i := range parts {
					large := at.newReview(large, call(validating))
					frames := chunksOf(s, large, 64<<10)
					if i%2 == 0 {
						at.sendAll(frames)
					} else {
						at.sendAll(frames[:40])
						at.cancel(large.GetCallId())
					}
					answered++
					at.answered(answered)
				}
				for range 2000 {
					at.cancel(1<<40+at.newID(0), 1, 2, 3, 4, 5, 6, 7)
				}
				at.ping()
			}
			flood()
			flood()
			before := p.rss()
			for range 4 {
				flood()
			}
			if grown := p.rss() - before; grown > memoryBound() {
				s.Errorf("behind 6 floods the host has %d MiB more than behind 2, which are %d MiB", grown>>20, before>>20)
			}
			p.release("x")
			for hook := range uint32(15) {
				allowed(s, at.verdict(held, hook))
			}
			at.works()
		},
	}}
}

// hooksOf are calls of one hook, so many.
func hooksOf(n int, name string) (calls []*hostv1.HookCall) {
	for range n {
		calls = append(calls, call(name))
	}
	return calls
}
