package conformance_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

const (
	initializeStage = admissionv1.Stage_STAGE_INITIALIZE
	initializing    = "c.example.com"
)

// initializerCases are about initializers and a scripted dispatcher.
func initializerCases() []testCase {
	return []testCase{{
		name:    "initializer-offered",
		asks:    "A host offers an initializer for its stage, beside hooks of its name for others, and answers probes of it.",
		why:     "the mesh calls nobody, or a mutating hook initializes",
		section: "initializers",
		play: func(s *stage) {
			p, at := s.host(settings{
				Validate: []string{validating}, Mutate: []string{mutating}, Initialize: []string{mutating, initializing}, Unready: []string{initializing},
			})
			var offers []string
			for _, o := range at.hello.GetHooks() {
				offers = append(offers, o.GetName()+" "+o.GetStage().String())
			}
			slices.Sort(offers)
			want := []string{
				validating + " STAGE_VALIDATE", mutating + " STAGE_INITIALIZE", mutating + " STAGE_MUTATE", initializing + " STAGE_INITIALIZE",
			}
			slices.Sort(want)
			if !slices.Equal(offers, want) {
				s.Errorf("the offers are %q, want %q", offers, want)
			}
			p.happened("ready", "", 1)
			result := at.probe(initializing)
			equal(s, "the initializer with a callback is ready", result.GetReady(), false)
			equal(s, "message", result.GetMessage(), "not ready")
			equal(s, "the initializer without a callback is ready", at.probe(mutating).GetReady(), true)
			p.do(map[string]string{"do": "ready", "hook": initializing})
			s.until("the initializer is ready", func() bool { return at.probe(initializing).GetReady() })
		},
	}, {
		name:    "initializer",
		asks:    "What an initializer makes of an object becomes a patch that changes what differs, and nothing else.",
		why:     "objects are created uninitialized, or lose fields that the types of the host do not know",
		section: "initializers",
		play:    initialized,
	}, {
		name:    "initializer-refuses",
		asks:    "An initializer that refuses an object denies it, with message, code, reason and causes; without a code it is 403 Forbidden.",
		why:     "the object is created all the same, or nobody learns why it is not",
		section: "initializers",
		play: func(s *stage) {
			_, at := s.host(withInitializers(initializing))
			plain := denied(s, at.ask(pod(`{"deny": {"message": "not häre – 😀"}, "labels": {"a": "b"}}`), initialize(initializing)))
			equal(s, "message", plain.GetMessage(), "not häre – 😀")
			equal(s, "code", plain.GetCode(), 403)
			equal(s, "reason", plain.GetReason(), "Forbidden")
			full := denied(s, at.ask(pod(`{"deny": {"message": "m", "code": 422, "reason": "Invalid", "causes": [
				{"field": "spec.image", "message": "latest"}]}}`), initialize(initializing)))
			equal(s, "code", full.GetCode(), 422)
			equal(s, "reason", full.GetReason(), "Invalid")
			var causes []string
			for _, c := range full.GetDetails().GetCauses() {
				causes = append(causes, c.GetField()+": "+c.GetMessage())
			}
			equal(s, "causes", strings.Join(causes, ", "), "spec.image: latest")
		},
	}, {
		name:    "initializer-fails",
		asks:    "An initializer that fails is a failure and no denial. Only the text of an authored error leaves the process.",
		why:     "secrets leak, or a bug refuses objects that failurePolicy lets pass",
		section: "initializers",
		play: func(s *stage) {
			_, at := s.host(withInitializers(initializing))
			for script, want := range map[string][]string{
				`{"error": "the registry is down – 😀"}`: {"the registry is down – 😀"},
				`{"fail": "hunter2"}`:                   {"handler failed"},
				`{"panic": "hunter2"}`:                  {"handler panicked", "handler failed"},
			} {
				if message := failed(s, at.ask(pod(script), initialize(initializing))); !slices.Contains(want, message) {
					s.Errorf("%s: the message is %q, want one of %q", script, message, want)
				}
			}
			at.works()
		},
	}, {
		name:    "initializer-without-object",
		asks:    "A call of an initializer without an object is a failure.",
		why:     "one bad call ends the host, or an object is made of nothing",
		section: "initializers",
		play: func(s *stage) {
			_, at := s.host(withInitializers(initializing))
			none := pod(`{}`)
			none.OldObject, none.Object = none.GetObject(), nil
			equal(s, "the failure has a message", failed(s, at.ask(none, initialize(initializing))) != "", true)
			at.works()
		},
	}, {
		name:    "initializer-stages",
		asks:    "Hooks of one name for several stages are several hooks, and each is called for its own stage.",
		why:     "an initializer runs as a mutating hook, or the other way round",
		section: "initializers",
		play: func(s *stage) {
			_, at := s.host(settings{Validate: []string{validating}, Mutate: []string{mutating}, Initialize: []string{mutating}})
			// A mutating hook sends the patch, an initializer knows labels alone.
			id := at.post(pod(`{"labels": {"a": "b"}, "patch": [{"op": "add", "path": "/spec", "value": {}}]}`),
				call(mutating), initialize(mutating), call(mutating))
			for i, want := range []string{"/spec", "/metadata/labels", "/spec"} {
				patch := allowed(s, at.verdict(id, uint32(i))).GetPatch()
				if !strings.Contains(string(patch), `"`+want) {
					s.Errorf("the patch of call %d is %s, want one of %s", i, patch, want)
				}
			}
		},
	}, {
		name:    "initializer-unknown-stage",
		asks:    "A host refuses a call for a stage that it does not offer the hook for, or does not know.",
		why:     "a mutating hook initializes, or a newer dispatcher ends the host",
		section: "initializers",
		play: func(s *stage) {
			p, at := s.host(withInitializers(initializing))
			for _, stage := range []admissionv1.Stage{mutateStage, validateStage, admissionv1.Stage_STAGE_UNSPECIFIED, admissionv1.Stage_STAGE_ADMIT, 77, -1} {
				refused(s, at.ask(pod(`{}`), call(initializing, func(c *hostv1.HookCall) { c.Stage = stage })), "unknown hook")
			}
			for _, hook := range []string{validating, mutating, "x.example.com"} {
				refused(s, at.ask(pod(`{}`), initialize(hook)), "unknown hook")
			}
			p.handlersCalled(at, 0)
		},
	}}
}

// withInitializers has the usual hooks and initializers.
func withInitializers(names ...string) settings {
	return settings{Validate: []string{validating}, Mutate: []string{mutating}, Initialize: names}
}

// initialize is a call of an initializer.
func initialize(hook string) *hostv1.HookCall {
	return call(hook, func(c *hostv1.HookCall) { c.Stage = initializeStage })
}

func initialized(s *stage) {
	p, at := s.host(withInitializers(initializing))
	const object = `{"apiVersion": "v1", "kind": "Pod", "big": 12345678901234567890123, "metadata": {"name": "p", "labels": {"keep": "me"}},
		"unknown": [{"a": null}, []], "script": {"labels": {"a": "b"}}}`
	v := allowed(s, at.ask(about(object), initialize(initializing)))
	equal(s, "patch_type", v.GetPatchType(), "JSONPatch")
	patch := must[jsonpatch.Patch](s)(jsonpatch.DecodePatch(v.GetPatch()))
	got := decoded(s, must[[]byte](s)(patch.Apply([]byte(object))))
	want := decoded(s, []byte(strings.Replace(object, `"keep": "me"`, `"keep": "me", "a": "b"`, 1)))
	if !reflect.DeepEqual(got, want) {
		s.Errorf("with the patch %s the object is %v, want %v", v.GetPatch(), got, want)
	}
	same := allowed(s, at.ask(pod(`{}`), initialize(initializing)))
	if text := string(same.GetPatch()); text != "" && text != "[]" {
		s.Errorf("the patch of an object that did not change is %s", text)
	}
	p.happened("returned", initializing, 2)
}

// meshInitializerCases are about initializers and the real dispatcher.
func meshInitializerCases() []testCase {
	hook := meshHook{name: initializing, initializes: true}
	return []testCase{{
		name:    "mesh-initializer",
		asks:    "The real dispatcher calls initializers in order and before the mutating hooks, each with what the ones before it made.",
		why:     "objects are created uninitialized",
		section: "initializers",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: append(usualHooks(), hook, meshHook{name: "d.example.com", initializes: true})})
			p := t.serve(withInitializers("d.example.com", initializing), n)
			p.happened("ready", "", 1)
			a := n.review(mutateStage, pod(`{"labels": {"team": "a"}, "warnings": ["of the mutating hook"]}`))
			equal(s, "label", labelOf(s, a, "team"), any("a"))
			equal(s, "the mutating hook was called", slices.Contains(a.Response.GetWarnings(), "of the mutating hook"), true)
			p.happened("called", mutating, 1)
			var order []string
			for _, e := range p.events.all() {
				if e.Event == "called" {
					order = append(order, e.Hook)
				}
			}
			equal(s, "order of calls", strings.Join(order, " "), initializing+" d.example.com "+mutating)
			a = n.review(mutateStage, pod(`{"deny": {"message": "no", "code": 422}}`))
			if a.Response.GetAllowed() || a.Failed || a.Response.GetStatus().GetCode() != 422 {
				s.Errorf("the answer to a refusal is %v", a.Response)
			}
			equal(s, "a review whose initializer fails has failed", n.review(mutateStage, pod(`{"error": "the registry is down"}`)).Failed, true)
			n.review(validateStage, pod(`{}`))
			update := pod(`{}`)
			update.Operation, update.OldObject = "UPDATE", update.GetObject()
			n.review(mutateStage, update)
			p.happened("called", mutating, 2)
			equal(s, "number of calls of the first initializer", count(p.events.all(), "called", initializing), 3)
		},
	}, {
		name:    "mesh-initializer-taken-over",
		asks:    "An initializer of a host that is killed acts on another one, once for the object.",
		why:     "a lost node leaves objects uninitialized, or refuses them",
		section: "initializers",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: []meshHook{hook}})
			o := settings{Validate: []string{}, Mutate: []string{}, Initialize: []string{initializing}}
			hosts := []*program{t.serve(o, n), t.serve(o, n)}
			for _, p := range hosts {
				p.happened("ready", "", 1)
			}
			answers := make(chan review.Answer, 1)
			go func() {
				a, _ := n.tryReview(mutateStage, pod(`{"hold": "x", "labels": {"team": "a"}}`))
				answers <- a
			}()
			called := func(p *program) bool { return count(p.events.all(), "called", initializing) > 0 }
			s.until("a host is called", func() bool { return slices.ContainsFunc(hosts, called) })
			if called(hosts[1]) {
				slices.Reverse(hosts)
			}
			equal(s, "both hosts are called", called(hosts[1]), false)
			hosts[0].signal(syscall.SIGKILL)
			hosts[1].happened("called", initializing, 1)
			hosts[1].release("x")
			a := <-answers
			equal(s, "the review is allowed", a.Response.GetAllowed(), true)
			equal(s, "label", labelOf(s, a, "team"), any("a"))
			equal(s, "number of calls of the other host", count(hosts[1].events.all(), "called", ""), 1)
		},
	}, {
		name:    "mesh-initializer-not-offered",
		asks:    "A host that offers the name of an initializer for another stage is not called for it, and serves that stage.",
		why:     "a host that knows no initializers gets calls that it does not understand",
		section: "initializers",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: []meshHook{{name: initializing, initializes: true}, {name: initializing, mutates: true}}})
			p := t.serve(settings{Validate: []string{}, Mutate: []string{initializing}}, n)
			p.happened("ready", "", 1)
			equal(s, "the review of a creation has failed", n.review(mutateStage, pod(`{}`)).Failed, true)
			update := pod(`{}`)
			update.Operation, update.OldObject = "UPDATE", update.GetObject()
			equal(s, "the review of an update is allowed", n.review(mutateStage, update).Response.GetAllowed(), true)
			p.happened("returned", initializing, 1)
			equal(s, "number of calls", count(p.events.all(), "called", ""), 1)
		},
	}}
}

// labelOf is a label of the object that a review leaves.
func labelOf(s *stage, a review.Answer, name string) any {
	s.Helper()
	object, _ := decoded(s, a.Object).(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[name]
}

// holds is an [initializer.Stager] as a [dispatcher.Stager].
type holds struct{ stager *initializer.Stager }

var _ dispatcher.Stager = holds{}

// Stage implements [dispatcher.Stager].
func (h holds) Stage(r *review.Request) (dispatcher.Hold, error) {
	hold, err := h.stager.Stage(r)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// stager stages in an etcd of its own, which ends with the case.
func (t *trust) stager(id string) dispatcher.Stager {
	t.Helper()
	server := must[*embedded.Server](t.stage)(embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()}))
	store := must[*staged.Store](t.stage)(staged.New(staged.Options{Client: server.Client()}))
	stager := must[*initializer.Stager](t.stage)(initializer.NewStager(initializer.Options{Store: store, ID: id}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	t.Cleanup(func() {
		stager.Close()
		stop()
		running.Wait()
		server.Close()
	})
	return holds{stager}
}
