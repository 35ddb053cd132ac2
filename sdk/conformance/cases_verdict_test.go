package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// verdictCases are about the results of handlers.
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
		name:    "deny-whatever",
		asks:    "A denial stays one, whatever the author adds to it: what cannot be sent is left out, and a code outside of 400 to 599 becomes 403.",
		why:     "the write that a handler denies passes, where the failurePolicy of the hook is Ignore",
		section: "outcomes",
		play:    func(s *stage) { playDenyWhatever(s, "") },
	}, {
		name:    "deny-thrown",
		asks:    "A denial that a handler throws, or returns as its error, is the same denial, at each stage.",
		why:     "the write that a handler denies passes, where the failurePolicy of the hook is Ignore",
		section: "outcomes",
		play:    func(s *stage) { playDenyWhatever(s, `"thrown": true, `) },
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
		name:    "difference",
		asks:    "The patch of a changed object equals the patch that the protocol defines.",
		why:     "the write is refused, or changed in another way than the handler meant",
		section: "changes",
		play:    playDifference,
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
			for _, start := range []string{"no", "no:", "no: ", "no: !"} { // The end of the frame is inside of a character, except with a single start.
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

// playDenyWhatever denies with decoration of all types. thrown has further members of a denial, each with a comma behind it.
func playDenyWhatever(s *stage, thrown string) {
	_, at := s.host(settings{Validate: []string{validating}, Mutate: []string{mutating}, Initialize: []string{initializing}})
	ask := func(script string, hook *hostv1.HookCall) *admissionv1.AdmissionResponse {
		s.Helper()
		v := at.ask(pod(script), hook)
		if status := denied(s, v); status.GetStatus() != "Failure" || status.GetCode() < 400 || status.GetCode() > 599 {
			s.Errorf("%s: the status is %v, want a failure with a code of HTTP's errors", script, status)
		}
		return v.GetResponse()
	}
	for _, hook := range []string{validating, mutating, initializing} {
		for code, want := range map[string]int32{
			"-422": 403, "0": 403, "1": 403, "200": 403, "399": 403, "400": 400, "599": 599, "600": 403, "1000": 403, "65536": 403, "3000000000": 403,
			"1e300": 403, "1.5": 403, "null": 403, `"ENOENT"`: 403, "{}": 403,
		} {
			v := ask(`{"deny": {`+thrown+`"message": "no", "code": `+code+`}}`, whatever(hook))
			if status := v.GetStatus(); status.GetCode() != want || status.GetMessage() != "no" || want == 403 && status.GetReason() != "Forbidden" {
				s.Errorf("%s: with code %s the status is %v, want code %d", hook, code, status, want)
			}
		}
		for _, value := range []string{"null", "7", "true", "{}", "[]", "[[]]", `[null]`, `{"a": null}`} {
			ask(`{"deny": {`+thrown+`"message": `+value+`}}`, whatever(hook))
			ask(`{"deny": {`+thrown+`"message": "no", "reason": `+value+`}}`, whatever(hook))
			v := ask(`{"deny": {`+thrown+`"message": "no", "causes": `+value+`}, "warnings": `+value+`, "audit": `+value+`}`, whatever(hook))
			equal(s, hook+": the message beside "+value, v.GetStatus().GetMessage(), "no")
		}
	}
	const more = `"warnings": [null, {}, 7, "w"], "audit": {"n": null, "l": [], "x": 3, "k": "v"}`
	for _, hook := range []string{validating, mutating} {
		v := ask(`{"deny": {`+thrown+`"message": "no", "code": 422, "causes": [null, [], 7, {"field": 7}, {"field": "f", "message": "m"}]}, `+more+`}`, whatever(hook))
		equal(s, "code", v.GetStatus().GetCode(), 422)
		equal(s, "audit annotation", v.GetAuditAnnotations()["k"], "v")
		equal(s, "the warning is among the warnings", slices.Contains(v.GetWarnings(), "w"), true)
		equal(s, "the cause is among the causes", slices.ContainsFunc(v.GetStatus().GetDetails().GetCauses(), func(c *admissionv1.StatusCause) bool {
			return c.GetField() == "f" && c.GetMessage() == "m"
		}), true)
	}
	at.works()
}

// playDifference plays each change of changes.json of which the handler knows all members: the object becomes another document.
func playDifference(s *stage) {
	_, at := s.host(settings{})
	var changes []struct {
		Name   string `json:"name"`
		Raw    string `json:"raw"`
		Before string `json:"before"`
		After  string `json:"after"`
		Patch  string `json:"patch"`
	}
	if err := json.Unmarshal(must[[]byte](s)(os.ReadFile("changes.json")), &changes); err != nil {
		s.Fatalf("changes.json: %v", err)
	}
	for _, c := range changes {
		if c.Before != "" {
			continue
		}
		object := fmt.Sprintf(`{"script": {"become": %s}, %s`, c.After, strings.TrimPrefix(c.Raw, "{"))
		v := allowed(s, at.ask(about(object), call(mutating)))
		patch, _ := decoded(s, v.GetPatch()).([]any)
		rest := slices.DeleteFunc(patch, func(operation any) bool {
			return reflect.DeepEqual(operation, map[string]any{"op": "remove", "path": "/script"})
		})
		want, _ := decoded(s, []byte(c.Patch)).([]any)
		if len(rest) != len(patch)-1 && len(want) > 0 || len(rest)+len(want) > 0 && !reflect.DeepEqual(rest, want) {
			s.Errorf("%s: the patch is %s, want %s and a remove of /script", c.Name, v.GetPatch(), c.Patch)
		}
	}
}

// whatever is a call of a hook of any stage.
func whatever(hook string) *hostv1.HookCall {
	return call(hook, func(c *hostv1.HookCall) {
		if hook == initializing {
			c.Stage = admissionv1.Stage_STAGE_INITIALIZE
		}
	})
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
