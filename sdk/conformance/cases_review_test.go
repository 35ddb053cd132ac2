package conformance_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// reviewCases are about reviews as handlers see them.
func reviewCases() []testCase {
	return []testCase{{
		name:    "many-hooks",
		asks:    "A host serves many hooks, and answers each hook of a review by its index.",
		why:     "one hook decides in the place of another",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			const hooks = 100
			var o settings
			var calls []*hostv1.HookCall
			for i := range hooks {
				name := fmt.Sprintf("h%d.example.com", i)
				o.Validate = append(o.Validate, name)
				calls = append(calls, call(name, func(c *hostv1.HookCall) { c.Configuration = "of " + name }))
			}
			o.MaxOutstanding, o.Mutate = hooks, []string{"h0.example.com"}
			p, at := s.host(o)
			slices.Reverse(calls)
			id := at.post(pod(`{"echo": true}`), calls...)
			for i, c := range calls {
				answer := allowed(s, at.verdict(id, uint32(i)))
				equal(s, "configuration", answer.GetAuditAnnotations()["configuration"], c.GetConfiguration())
			}
			for _, name := range o.Validate {
				p.happened("returned", name, 1)
			}
		},
	}, {
		name:    "unknown-hook",
		asks:    "A host refuses a hook that it does not offer for the stage, and answers the others of the review.",
		why:     "a review fails as a whole, or a mutating hook is asked to validate",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			_, at := s.host(settings{})
			id := at.post(pod(`{}`), call("x.example.com"), call(mutating, func(c *hostv1.HookCall) { c.Stage = validateStage }), call(validating))
			refused(s, at.verdict(id, 0), "unknown hook")
			refused(s, at.verdict(id, 1), "unknown hook")
			allowed(s, at.verdict(id, 2))
		},
	}, {
		name:    "no-request",
		asks:    "A host refuses a review without a request.",
		why:     "a handler judges an empty object",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			p, at := s.host(settings{})
			refused(s, at.ask(nil, call(validating)), "review without a request")
			p.handlersCalled(at, 0)
		},
	}, {
		name:    "out-of-order",
		asks:    "A host sends each verdict when its handler returns, whatever came before.",
		why:     "one slow hook holds up all writes",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			p, at := s.host(settings{})
			var ids []uint64
			for i := range 5 {
				ids = append(ids, at.post(pod(fmt.Sprintf(`{"hold": "x%d"}`, i)), call(validating)))
			}
			p.happened("called", "", 5)
			for _, i := range []int{3, 1, 4, 0, 2} {
				p.release(fmt.Sprintf("x%d", i))
				allowed(s, at.verdict(ids[i], 0))
			}
			var order []uint64
			for _, verdict := range at.verdictOrder() {
				order = append(order, verdict.call)
			}
			if want := []uint64{ids[3], ids[1], ids[4], ids[0], ids[2]}; !slices.Equal(order, want) {
				s.Errorf("the order of verdicts is %v, want %v", order, want)
			}
		},
	}, {
		name:    "times",
		asks:    "A verdict says how long its call waited for its handler, and how long that took.",
		why:     "nobody sees whether a slow hook needs more replicas or a faster handler",
		section: "reviews-and-verdicts",
		play:    times,
	}, {
		name:    "echo",
		asks:    "A handler sees each field of its request and of its call.",
		why:     "a policy decides by what is not so",
		section: "reviews-and-verdicts",
		play:    echo,
	}, {
		name:    "raw-bytes",
		asks:    "A handler sees objects byte for byte as they came.",
		why:     "numbers lose digits, signatures break, and patches do not fit",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			_, at := s.host(settings{})
			for _, odd := range []string{
				`{"script": {"echo": true},"z":1,"a":2}`,
				`{"script":{"echo":true},"n":[1.0,1.50e+3,-0.0,1E400,12345678901234567890123,0.1e-7]}`,
				"{\"script\" : \t{ \"echo\" :  true } ,\r\n\n  \"b\":  [ ] }\n \n",
				`{"script":{"echo":true},"u":"\u00e9 é \ud83d\ude00 😀 \/ \\ \u0000 ` + "\u2028" + `"}`,
				`{"script":{"echo":true},"deep":{"":{"":[[],{},null,true]}},"é":{"\u00e9":1}}`,
			} {
				request := about(odd)
				request.OldObject = &admissionv1.Object{Raw: []byte("  " + odd)}
				seen := allowed(s, at.ask(request, call(validating))).GetAuditAnnotations()
				equal(s, "digest of the object "+odd, seen["object-sha256"], digest(odd))
				equal(s, "digest of the old object", seen["old-object-sha256"], digest("  "+odd))
			}
		},
	}, {
		name:    "trace",
		asks:    "The span of a handler is a child of the call's span, and without one of the review's.",
		why:     "traces of writes end at the mesh",
		section: "traces",
		play: func(s *stage) {
			const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
			_, at := s.host(settings{Validate: []string{validating, "c.example.com"}})
			span := func(hex ...byte) func(c *hostv1.HookCall) { return func(c *hostv1.HookCall) { c.SpanId = hex } }
			parents := func(traceparent string, calls ...*hostv1.HookCall) (out []string) {
				r := at.newReview(pod(`{"echo": true}`), calls...)
				r.Traceparent, r.Tracestate = traceparent, "vendor=x"
				at.sendReview(r)
				for i := range calls {
					out = append(out, allowed(s, at.verdict(r.GetCallId(), uint32(i))).GetAuditAnnotations()["traceparent"])
				}
				return out
			}
			traced := "00-" + traceID + "-00f067aa0ba902b7-01"
			got := parents(traced, call(validating, span(1, 2, 3, 4, 5, 6, 7, 8)), call("c.example.com", span(9, 10, 11, 12, 13, 14, 15, 16)), call(validating))
			want := []string{traceID + "-0102030405060708", traceID + "-090a0b0c0d0e0f10", traceID + "-00f067aa0ba902b7"}
			if !slices.Equal(got, want) {
				s.Errorf("the parents of the handlers' spans are %v, want %v", got, want)
			}
			for _, none := range []string{"", "no traceparent"} {
				equal(s, fmt.Sprintf("parent for the traceparent %q", none), parents(none, call(validating, span(1, 2, 3, 4, 5, 6, 7, 8)))[0], "")
			}
			equal(s, "parent for a span id of 3 bytes", parents(traced, call(validating, span(1, 2, 3)))[0], traceID+"-00f067aa0ba902b7")
		},
	}}
}

func digest(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return hex.EncodeToString(sum[:])
}

// times has a call wait for the only slot of a host, which a call of another dispatcher has.
func times(s *stage) {
	const wait = 300 * time.Millisecond
	one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
	p := s.start(settings{Dispatchers: []string{one.addr, two.addr}, MaxOutstanding: 1})
	first, second := one.accept(), two.accept()
	began := time.Now()
	busy := first.post(pod(`{"hold": "x"}`), call(validating))
	p.happened("called", validating, 1)
	waiting := second.post(pod(`{}`), call(validating))
	second.ping() // Behind it the host has read the review.
	s.pass(wait)
	p.release("x")
	handled, queued := first.verdict(busy, 0), second.verdict(waiting, 0)
	most := time.Since(began)
	for what, took := range map[string]uint32{"handle_us of the call that ran": handled.GetHandleUs(), "queue_us of the call that waited": queued.GetQueueUs()} {
		if took := time.Duration(took) * time.Microsecond; took < wait-10*time.Millisecond || took > most {
			s.Errorf("%s is %s, want %s at least and %s at most", what, took, wait, most)
		}
	}
}

func echo(s *stage) {
	_, at := s.host(settings{})
	full := pod(`{"echo": true}`)
	full.Uid, full.Cluster, full.Namespace, full.Name, full.Operation = "uid-1", "prod-é", "ns-1", "name-1", "UPDATE"
	full.UserInfo.Username, full.DryRun = "system:serviceaccount:ns-1:robot", proto.Bool(true)
	full.OldObject = &admissionv1.Object{Raw: []byte(`{"old":  1}`)}
	gone := pod(`{}`)
	gone.Operation, gone.OldObject, gone.Object = "DELETE", &admissionv1.Object{Raw: []byte(`{"script": {"echo": true}}`)}, nil
	bare := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: []byte(`{"script": {"echo": true}}`)}}
	for _, c := range []struct {
		request *admissionv1.AdmissionRequest
		call    *hostv1.HookCall
		want    map[string]string
	}{
		{full, call(mutating, func(c *hostv1.HookCall) { c.Round, c.Mode = 1, hostv1.Mode_MODE_SPECULATIVE }), map[string]string{
			"uid": "uid-1", "cluster": "prod-é", "namespace": "ns-1", "name": "name-1", "operation": "UPDATE",
			"username": "system:serviceaccount:ns-1:robot", "dry-run": "true", "round": "1", "mode": "MODE_SPECULATIVE", "configuration": "policies",
			"object-sha256": digest(string(full.GetObject().GetRaw())), "old-object-sha256": digest(`{"old":  1}`), "traceparent": "",
		}},
		{gone, call(validating, func(c *hostv1.HookCall) { c.Mode, c.Configuration = hostv1.Mode_MODE_SHADOW, "other" }), map[string]string{
			"uid": gone.GetUid(), "cluster": "c1", "namespace": "default", "name": "p", "operation": "DELETE", "username": "jane", "dry-run": "false",
			"round": "0", "mode": "MODE_SHADOW", "configuration": "other", "object-sha256": "",
			"old-object-sha256": digest(`{"script": {"echo": true}}`), "traceparent": "",
		}},
		{bare, call(validating, func(c *hostv1.HookCall) { c.Mode, c.Configuration = hostv1.Mode_MODE_HEDGE, "" }), map[string]string{
			"uid": "", "cluster": "", "namespace": "", "name": "", "operation": "", "username": "", "dry-run": "false", "round": "0",
			"mode": "MODE_HEDGE", "configuration": "", "object-sha256": digest(`{"script": {"echo": true}}`), "old-object-sha256": "", "traceparent": "",
		}},
	} {
		got := allowed(s, at.ask(c.request, c.call)).GetAuditAnnotations()
		left, err := strconv.Atoi(got["remaining-ms"])
		if most := int(longTime.Milliseconds()); err != nil || left > most || left < most/2 {
			s.Errorf("remaining-ms is %q, want up to %d", got["remaining-ms"], most)
		}
		delete(got, "remaining-ms")
		if !maps.Equal(got, c.want) {
			s.Errorf("the handler saw %v, want %v", got, c.want)
		}
	}
}

// timeCases are about deadlines and cancellations.
func timeCases() []testCase {
	return []testCase{{
		name:    "deadline",
		asks:    "A handler is told of the deadline of its own call, and one that stops for it is answered Cancelled.",
		why:     "handlers work for callers that wait no longer",
		section: "time",
		play: func(s *stage) {
			p, at := s.host(settings{Validate: []string{validating, "c.example.com"}})
			sent := time.Now()
			id := at.post(pod(`{"hold": "x"}`), call(validating, within(400*time.Millisecond)), call("c.example.com"))
			cancelled(s, at.verdict(id, 0))
			if took := time.Since(sent); took < 380*time.Millisecond {
				s.Errorf("the call ended after %s, it had 400 ms", took)
			}
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
			at.ping()
			at.none(id, 1)
			p.release("x")
			allowed(s, at.verdict(id, 1))
			equal(s, "cancelled", p.returned("c.example.com").Cancelled, false)
		},
	}, {
		name:    "no-time-left",
		asks:    "A host refuses a call whose time is over, and does not start its handler.",
		why:     "a host that is behind does work that counts nowhere",
		section: "time",
		play: func(s *stage) {
			p, at := s.host(settings{})
			refused(s, at.ask(pod(`{}`), call(validating, within(0))), "no time left")
			p.handlersCalled(at, 0)
		},
	}, {
		name:    "late-answer",
		asks:    "A handler that ignores the end of its time keeps its slot, and is answered once.",
		why:     "the dispatcher and the host disagree about free slots",
		section: "time",
		play: func(s *stage) {
			p, at := s.host(settings{MaxOutstanding: 1})
			v := at.ask(pod(`{"blockMs": 600}`), call(validating, within(150*time.Millisecond)))
			if !v.GetResponse().GetAllowed() && v.GetCancelled() == nil {
				s.Errorf("want the late response, or Cancelled, and have %v", v)
			}
			at.works()
			p.happened("returned", validating, 2)
		},
	}, {
		name:    "cancel",
		asks:    "A cancelled handler is told at once, and its call is answered all the same.",
		why:     "slots of calls that nobody waits for stay taken",
		section: "cancel",
		play: func(s *stage) {
			p, at := s.host(settings{})
			one := at.post(pod(`{"hold": "x"}`), call(validating))
			two := at.post(pod(`{"waitMs": 600000}`), call(mutating), call(validating))
			p.happened("called", "", 3)
			at.cancel(one)
			cancelled(s, at.verdict(one, 0))
			at.ping()
			at.none(two, 0)
			at.cancel(two)
			cancelled(s, at.verdict(two, 0))
			cancelled(s, at.verdict(two, 1))
			p.await("three handlers that were cancelled", func(events []event) bool {
				return len(slices.DeleteFunc(slices.Clone(events), func(e event) bool { return !e.Cancelled })) == 3
			})
		},
	}, {
		name:    "cancel-some",
		asks:    "A Cancel with indexes ends those hooks of a review, and no other.",
		why:     "a hook is cut off whose verdict is still wanted",
		section: "cancel",
		play: func(s *stage) {
			p, at := s.host(settings{Validate: []string{validating, "c.example.com", "d.example.com"}})
			id := at.post(pod(`{"hold": "x"}`), call(validating), call("c.example.com"), call("d.example.com"))
			p.happened("called", "", 3)
			at.cancel(id, 1, 7) // There is no hook 7.
			cancelled(s, at.verdict(id, 1))
			at.ping()
			at.none(id, 0)
			at.none(id, 2)
			p.release("x")
			allowed(s, at.verdict(id, 0))
			allowed(s, at.verdict(id, 2))
		},
	}, {
		name:    "cancel-crosses-verdict",
		asks:    "A Cancel that crosses the verdict changes nothing: there is one verdict for each call.",
		why:     "a second verdict is counted against the host, and many of them end its session",
		section: "cancel",
		play: func(s *stage) {
			const calls = 400
			_, at := s.host(settings{MaxOutstanding: calls})
			for i := range calls {
				at.cancel(at.post(pod(fmt.Sprintf(`{"waitMs": %d}`, i%3)), call(validating)))
			}
			at.answered(calls)
			for id := range uint64(calls) { // again, and now for calls that have ended
				at.cancel(id + 1)
			}
			at.ping()
			at.works()
			equal(s, "number of verdicts", len(at.verdictOrder()), calls+1)
		},
	}, {
		name:    "cancel-early",
		asks:    "A Cancel that comes before its review is remembered: the handlers that it names are not started.",
		why:     "a cancelled call runs to the end of its time",
		section: "cancel",
		play: func(s *stage) {
			p, at := s.host(settings{Validate: []string{validating, "c.example.com"}})
			r := at.newReview(pod(`{"hold": "never"}`), call(validating))
			some := at.newReview(pod(`{}`), call(validating), call("c.example.com"))
			at.cancel(r.GetCallId())
			at.cancel(some.GetCallId(), 0)
			at.sendReview(r)
			at.sendReview(some)
			refused(s, at.verdict(r.GetCallId(), 0), "cancelled before its start")
			refused(s, at.verdict(some.GetCallId(), 0), "cancelled before its start")
			allowed(s, at.verdict(some.GetCallId(), 1))
			p.handlersCalled(at, 1)
		},
	}, {
		name:    "cancel-early-bounded",
		asks:    "A host remembers 1,024 early cancellations, and forgets the oldest first.",
		why:     "a dispatcher that cancels much takes the host's memory, or the latest cancellations are lost",
		section: "cancel",
		play: func(s *stage) {
			const cancels = 3000
			_, at := s.host(settings{})
			var reviews []*hostv1.Review
			for range cancels {
				r := at.newReview(pod(`{}`), call(validating))
				at.cancel(r.GetCallId())
				reviews = append(reviews, r)
			}
			at.sendReview(reviews[cancels-1])
			refused(s, at.verdict(reviews[cancels-1].GetCallId(), 0), "cancelled before its start")
			at.works()
		},
	}, {
		name:    "stopped-process",
		asks:    "A host whose process was stopped for a while goes on where it was, and ends what has run out of time.",
		why:     "a paused virtual machine costs the replica",
		section: "time",
		play: func(s *stage) {
			p, at := s.host(settings{})
			id := at.post(pod(`{"hold": "x"}`), call(validating, within(300*time.Millisecond)))
			other := at.post(pod(`{"hold": "x"}`), call(mutating))
			p.happened("called", "", 2)
			p.signal(stopSignal)
			s.pass(time.Second)
			p.signal(continueSignal)
			cancelled(s, at.verdict(id, 0))
			at.ping()
			p.release("x")
			allowed(s, at.verdict(other, 0))
		},
	}}
}
