package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// verdictCases are about what handlers return.
func verdictCases() []testCase {
	return []testCase{{
		name:    "deny",
		asks:    "A denial carries its message, code, reason and causes; without a code it is 403 Forbidden.",
		why:     "the person whose write is refused does not learn why",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			plain := denied(s, at.ask(pod(`{"deny": {"message": "not häre – 😀"}}`), call(validating)))
			equal(s, "message", plain.GetMessage(), "not häre – 😀")
			equal(s, "code", plain.GetCode(), 403)
			equal(s, "reason", plain.GetReason(), "Forbidden")
			equal(s, "number of causes", len(plain.GetDetails().GetCauses()), 0)
			full := denied(s, at.ask(pod(`{"deny": {"message": "m", "code": 422, "reason": "Invalid", "causes": [
				{"field": "spec.containers[0].image", "message": "latest"}, {"field": "", "message": "second"}]}}`), call(mutating)))
			equal(s, "code", full.GetCode(), 422)
			equal(s, "reason", full.GetReason(), "Invalid")
			var causes []string
			for _, c := range full.GetDetails().GetCauses() {
				causes = append(causes, c.GetField()+": "+c.GetMessage())
			}
			if want := []string{"spec.containers[0].image: latest", ": second"}; !slices.Equal(causes, want) {
				s.Errorf("the causes are %q, want %q", causes, want)
			}
		},
	}, {
		name:    "warnings-and-audit",
		asks:    "Warnings and audit annotations go with each kind of verdict.",
		why:     "clients and audit logs lack what the handler has to say",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			const more = `"warnings": ["first", "zweite – 😀"], "audit": {"k": "v", "ключ": "значение"}`
			for _, script := range []string{
				`{` + more + `}`, `{"deny": {"message": "no"}, ` + more + `}`,
				`{"patch": [{"op": "add", "path": "/metadata/labels", "value": {}}], ` + more + `}`, `{"labels": {"a": "b"}, ` + more + `}`,
			} {
				v := at.ask(pod(script), call(mutating)).GetResponse()
				if !slices.Equal(v.GetWarnings(), []string{"first", "zweite – 😀"}) {
					s.Errorf("%s: the warnings are %q", script, v.GetWarnings())
				}
				if !maps.Equal(v.GetAuditAnnotations(), map[string]string{"k": "v", "ключ": "значение"}) {
					s.Errorf("%s: the audit annotations are %q", script, v.GetAuditAnnotations())
				}
			}
		},
	}, {
		name:    "patch",
		asks:    "A JSON patch of the handler goes to the dispatcher as it is, as a JSONPatch.",
		why:     "the object is not changed, or not as the handler meant",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			const patch = `[{"op": "test", "path": "/kind", "value": "Pod"}, {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "ü", "n": null}},
				{"op": "copy", "from": "/metadata/name", "path": "/metadata/generateName"}, {"op": "replace", "path": "/spec", "value": 12.5}]`
			v := allowed(s, at.ask(pod(`{"patch": `+patch+`}`), call(mutating)))
			equal(s, "patch_type", v.GetPatchType(), "JSONPatch")
			if got, want := decoded(s, v.GetPatch()), decoded(s, []byte(patch)); !reflect.DeepEqual(got, want) {
				s.Errorf("the patch is %s, want %s", v.GetPatch(), patch)
			}
			plain := allowed(s, at.ask(pod(`{}`), call(mutating)))
			equal(s, "patch and type of a verdict without one", string(plain.GetPatch())+plain.GetPatchType(), "")
		},
	}, {
		name:    "patch-of-a-validating-hook",
		asks:    "A patch of a validating hook is a failure.",
		why:     "the author believes that the object was changed",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			message := failed(s, at.ask(pod(`{"patch": [{"op": "remove", "path": "/spec"}]}`), call(validating)))
			equal(s, "the failure has a message", message != "", true)
			at.works()
		},
	}, {
		name:    "patch-by-difference",
		asks:    "The difference of two documents is a patch that changes what differs, and nothing else.",
		why:     "fields and digits that the types of the host do not know are lost",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			for _, metadata := range []string{`{"name": "p"}`, `{"labels": {"keep": "me", "a": "old"}, "name": "p"}`, `{"labels": {}, "x": 1e2}`} {
				object := fmt.Sprintf(`{"big": 12345678901234567890123, "float": 1.50, "metadata": %s, "unknown": [{"a": null}, []], "script":
					{"labels": {"a": "new", "example.com/team~1": "ü"}}}`, metadata)
				v := allowed(s, at.ask(about(object), call(mutating)))
				patch := must[jsonpatch.Patch](s)(jsonpatch.DecodePatch(v.GetPatch()))
				for _, operation := range patch {
					if path, _ := operation.Path(); !strings.HasPrefix(path, "/metadata/labels") {
						s.Errorf("the patch changes %q: %s", path, v.GetPatch())
					}
				}
				want, _ := decoded(s, []byte(object)).(map[string]any)
				at, _ := want["metadata"].(map[string]any)
				labels, _ := at["labels"].(map[string]any)
				if labels == nil {
					labels = map[string]any{}
				}
				labels["a"], labels["example.com/team~1"] = "new", "ü"
				at["labels"] = labels
				got := decoded(s, must[[]byte](s)(patch.Apply([]byte(object))))
				if !reflect.DeepEqual(got, any(want)) {
					s.Errorf("with the patch %s the object is %v, want %v", v.GetPatch(), got, want)
				}
			}
			same := allowed(s, at.ask(about(`{"metadata": {"labels": {"a": "b"}}, "script": {"labels": {"a": "b"}}}`), call(mutating)))
			if text := string(same.GetPatch()); text != "" && text != "[]" {
				s.Errorf("the patch of an object that did not change is %s", text)
			}
		},
	}, {
		name:    "failures",
		asks:    "A failed handler is a failure and no denial. Only the text of an authored error leaves the process.",
		why:     "secrets leak, or a bug refuses writes that its failurePolicy lets pass",
		section: "outcomes",
		play: func(s *stage) {
			_, at := s.host(settings{})
			equal(s, "message", failed(s, at.ask(pod(`{"error": "the registry is down – 😀"}`), call(validating))), "the registry is down – 😀")
			equal(s, "message", failed(s, at.ask(pod(`{"fail": "hunter2"}`), call(validating))), "handler failed")
			v := at.ask(pod(`{"panic": "hunter2"}`), call(validating))
			if want := map[bool]string{true: "handler panicked", false: "handler failed"}[v.GetError().GetPanicked()]; failed(s, v) != want {
				s.Errorf("the verdict of a panic is %v, want the message %q", v, want)
			}
			long := failed(s, at.ask(pod(`{"error": "`+strings.Repeat("é", 4000)+`"}`), call(mutating)))
			if len(long) > 1024 || !strings.HasPrefix(long, "éé") {
				s.Errorf("a text of 8,000 bytes becomes one of %d bytes: %.20q, want at most 1,024", len(long), long)
			}
			at.works()
		},
	}, {
		name:    "panic-is-contained",
		asks:    "A panic costs its own call alone.",
		why:     "one bad object takes down every hook of the replica",
		section: "outcomes",
		play: func(s *stage) {
			p, at := s.host(settings{})
			held := at.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			for range 20 {
				failed(s, at.ask(pod(`{"panic": "oh"}`), call(mutating)))
			}
			p.release("x")
			allowed(s, at.verdict(held, 0))
		},
	}, {
		name:    "verdict-too-large",
		asks:    "A verdict larger than the dispatcher takes is cut if it denies, and a failure if it allows.",
		why:     "one verdict ends the session, or a denial is lost",
		section: "limits",
		play: func(s *stage) {
			const most = 600
			_, at := s.host(settings{}, func(w *hostv1.Welcome) { w.MaxVerdictBytes = most })
			long := strings.Repeat("😀", 3000)
			for _, start := range []string{"no", "no:", "no: ", "no: !"} { // The end of the frame is inside of a character, but for one of them.
				status := denied(s, at.ask(pod(fmt.Sprintf(`{"deny": {"message": "%s%s", "code": 422, "causes": [{"field": "f", "message": "m"}]},
					"warnings": ["%s"], "audit": {"k": "%s"}}`, start, long, long, long)), call(validating)))
				message := status.GetMessage()
				if !strings.HasPrefix(message, start+"😀") || strings.ContainsRune(message, utf8.RuneError) || status.GetCode() != 422 {
					s.Errorf("the denial became %v, want its code and the start of its message, in whole characters", status)
				}
			}
			failed(s, at.ask(pod(fmt.Sprintf(`{"audit": {"k": "%s"}}`, long)), call(validating)))
			failed(s, at.ask(pod(fmt.Sprintf(`{"patch": [{"op": "add", "path": "/x", "value": "%s"}]}`, long)), call(mutating)))
			at.works()
		},
	}}
}

// decoded is a JSON document whose numbers keep their spelling.
func decoded(s *stage, document []byte) (value any) {
	s.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		s.Fatalf("%s: %v", document, err)
	}
	return value
}
