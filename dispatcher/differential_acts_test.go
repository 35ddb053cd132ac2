package dispatcher_test

import (
	"fmt"
	"net/http"
	"strings"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// droppedUpstream is the value of annotations whose keys kube-apiserver does not accept.
const droppedUpstream = "under a key that is not accepted"

// wholeFraction is a whole number that is written as a fraction, and wholeNumber the same as everybody else writes it.
const (
	wholeFraction = "7e3"
	wholeNumber   = "7000"
)

// scripting makes the script of one hook in one experiment.
type scripting struct {
	chance

	experiment *experiment
	hook       scripted
}

// script is nil for a hook that allows.
func (s scripting) script() script {
	var out script
	if s.in(3) {
		out = append(out, step{pick(s.chance, "spec.flag", "metadata.labels.env", "metadata.labels.skip", "spec.by", "spec.paused", "metadata.annotations.seen"), s.sayableAct()})
	}
	if !s.in(4) {
		out = append(out, step{"", s.sayableAct()})
	}
	return out
}

// sayableAct is an act that the carrier of the hook can carry.
func (s scripting) sayableAct() act {
	if s.hook.https {
		return s.spoken(s.act())
	}
	for {
		if a := s.act(); !s.experiment.world.Streams || sayable(a.say(nil)) {
			return a
		}
	}
}

func (s scripting) act() act {
	if s.mayHang() && s.in(3) {
		return always("hangs", oracle.Answer{Hang: true})
	}
	if s.experiment.Stage == validate {
		switch n := s.IntN(20); {
		case n < 9:
			return s.dressed(always("allows", oracle.Allow()))
		case n < 14:
			return s.dressed(s.denial())
		case n < 17:
			return s.failure()
		default:
			return s.dressed(s.malformed())
		}
	}
	switch n := s.IntN(40); {
	case n < 6:
		return s.dressed(always("allows", oracle.Allow()))
	case n < 24:
		return s.dressed(s.change())
	case n < 30:
		return s.dressed(s.noChange())
	case n < 32:
		return s.dressed(s.denial())
	case n < 35:
		return s.failure()
	case n < 38:
		return s.dressed(s.malformed())
	default:
		return s.dressed(s.inapplicable())
	}
}

// mayHang reports whether the hook's time ends soon enough for a test.
func (s scripting) mayHang() bool {
	return s.experiment.Deadline > 0 || (s.hook.TimeoutSeconds != nil && *s.hook.TimeoutSeconds == oneSecond && s.in(8))
}

// dressed adds warnings and annotations to the answers of an act.
func (s scripting) dressed(a act) act {
	var warnings []string
	audit := map[string]string{}
	if s.in(4) {
		warnings = some(s.chance, "careful", "deprecated: use é", s.hook.Name+" was here")
	}
	if s.in(4) {
		// Hooks of one name may run at once: their values of one annotation key have to be equal.
		audit["why"] = s.hook.Name
		if s.experiment.Stage != validate {
			audit["why"] = a.name // the first value of a key stays
		}
	}
	if s.in(8) {
		audit[pick(s.chance, "a/b", "", "spa ce", "-dash", strings.Repeat("x", 64))] = droppedUpstream
	}
	if warnings == nil && len(audit) == 0 {
		return a
	}
	return act{fmt.Sprintf("%s, warnings %q, audit %q", a.name, warnings, audit), func(o map[string]any) oracle.Answer {
		answer := a.say(o)
		if answer.Response != nil {
			answer.Response = answer.Response.DeepCopy()
			answer.Response.Warnings, answer.Response.AuditAnnotations = warnings, audit
		}
		return answer
	}}
}

// denial is a refusal with every kind of status, now and then with something malformed beside it.
func (s scripting) denial() act {
	answer := oracle.Answer{Response: &k8sadmissionv1.AdmissionResponse{}}
	name := "denies"
	if !s.in(6) {
		answer = oracle.Deny(pick[int32](s.chance, 0, 200, 399, 400, 403, 403, 409, 422, 429, 500, 503),
			pick[metav1.StatusReason](s.chance, "", "Forbidden", "Because"), pick(s.chance, "", "no", "not \"here\":\nnever"))
		answer.Response.Result.Status = pick(s.chance, "", "", metav1.StatusSuccess, metav1.StatusFailure)
		if s.in(3) {
			answer.Response.Result.Details = pick(s.chance, &metav1.StatusDetails{},
				&metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Message: "too big", Field: "spec.size"}}},
				&metav1.StatusDetails{Name: "x", Group: "g", Kind: "K", UID: "u", RetryAfterSeconds: 7})
		}
		name = fmt.Sprintf("denies %+v", *answer.Response.Result)
	}
	jsonPatch, other := k8sadmissionv1.PatchTypeJSONPatch, k8sadmissionv1.PatchType("Merge")
	switch s.IntN(8) {
	case 0:
		answer.Response.Patch = []byte(s.fitting())
		name += " with a patch without a type"
	case 1:
		answer.Response.PatchType = &jsonPatch
		name += " with the type of no patch"
	case 2:
		answer.Response.Patch, answer.Response.PatchType = []byte(s.fitting()), pick(s.chance, &jsonPatch, &other)
		name += " with a patch of type " + string(*answer.Response.PatchType)
	}
	return always(name, answer)
}

// failure is no verdict.
func (s scripting) failure() act {
	edited := func(change func(*k8sadmissionv1.AdmissionReview)) oracle.Answer {
		a := pick(s.chance, oracle.Allow(), oracle.Deny(403, "", "no"))
		a.Edit = change
		return a
	}
	return pick(s.chance,
		always("drops the connection", oracle.Answer{Drop: true}),
		always("answers 500", oracle.Status(http.StatusInternalServerError)),
		always("answers 404", oracle.Status(http.StatusNotFound)),
		always("answers no JSON", oracle.Answer{Body: []byte("{")}),
		always("answers without a response", oracle.Answer{}),
		always("answers with another uid", edited(func(r *k8sadmissionv1.AdmissionReview) { r.Response.UID = "other" })),
		always("answers in another version", edited(func(r *k8sadmissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" })),
	)
}

// fitting is a patch that makes a difference, as a rule.
func (s scripting) fitting() string {
	if s.builtIn() {
		return `[{"op":"add","path":"/metadata/annotations/by","value":"hook"}]`
	}
	return `[{"op":"add","path":"/spec/by","value":1}]`
}

// malformed is an allowing answer that breaks the contract.
func (s scripting) malformed() act {
	typed := func(patch string, kind k8sadmissionv1.PatchType) act {
		a := oracle.Patch("%s", patch)
		a.Response.PatchType = &kind
		return always(fmt.Sprintf("patches %s of type %q", patch, kind), a)
	}
	some := s.fitting()
	untyped := oracle.Patch("%s", some)
	untyped.Response.PatchType = nil
	unpatched := oracle.Allow()
	unpatched.Response.PatchType = new(k8sadmissionv1.PatchType)
	*unpatched.Response.PatchType = k8sadmissionv1.PatchTypeJSONPatch
	return pick(s.chance,
		always("patches without a type", untyped), always("has the type of no patch", unpatched),
		typed(some, "Merge"), typed(some, ""), typed(`[]`, "jsonpatch"),
		typed(`[{`, "JSONPatch"), typed(`{}`, "JSONPatch"), typed(`"x"`, "JSONPatch"), typed(`[1]`, "JSONPatch"), typed(`[] []`, "JSONPatch"),
	)
}

// patches is an act that sends a patch.
func patches(format string, args ...any) act {
	a := oracle.Patch(format, args...)
	return always("patches "+string(a.Response.Patch), a)
}

// noChange is a patch that makes no difference.
func (s scripting) noChange() act {
	return patches("%s", pick(s.chance, `[]`, `null`, ` [ ] `, `[{"op":"test","path":"/kind","value":"`+s.experiment.Request.GetKind().GetKind()+`"}]`,
		`[{"op":"add","path":"/extra","value":{}},{"op":"remove","path":"/extra"}]`))
}

// inapplicable is a patch that does not apply, or to something that is no object afterwards. Those that make the library
// panic are missing: in kube-apiserver the whole request does (TestApplyPatch of package conversion has them).
func (s scripting) inapplicable() act {
	field := "/spec/b"
	if s.builtIn() {
		field = "/metadata/labels" // whose type is known
	}
	all := []string{
		`[{"op":"test","path":"/kind","value":"Other"}]`, `[{"op":"remove","path":"/missing"}]`, `[{"op":"replace","path":"/missing/a","value":1}]`,
		`[{"op":"add","path":"/missing/a","value":1}]`, `[{"op":"add","path":"/spec/list/9","value":1}]`, `[{"op":"merge","path":"/spec"}]`,
		`[{"op":"move","from":"/missing","path":"` + field + `"}]`, `[{"op":"copy","from":"/missing","path":"` + field + `"}]`, `[null]`,
		`[{"op":"replace","path":"","value":[]}]`, `[{"op":"replace","path":"","value":"x"}]`,
	}
	if s.builtIn() { // whose kind and unknown fields do not depend on the patched object
		return patches("%s", pick(s.chance, append(all, s.mistyped()...)...))
	}
	return patches("%s", pick(s.chance, append(all,
		`[{"op":"remove","path":"/kind"}]`, `[{"op":"replace","path":"/kind","value":7}]`, `[{"op":"replace","path":"/kind","value":""}]`,
		`[{"op":"replace","path":"/apiVersion","value":{}}]`, `[{"op":"replace","path":"/apiVersion","value":"a/b/c"}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"add","path":"/spec/size","value":1e999}]`,
	)...))
}

// builtIn reports whether the object has a type: fields that the type does not know are dropped.
func (s scripting) builtIn() bool { return s.experiment.typed() }

// change is a patch that makes a difference, to most objects.
func (s scripting) change() act {
	if s.builtIn() {
		return s.typedChange()
	}
	env := pick(s.chance, "dev", "prod")
	switch s.IntN(16) {
	case 0: // labels, which selectors test
		return patches(`[{"op":"add","path":"/metadata/labels","value":{"env":%q}}]`, env)
	case 1:
		return s.flip("metadata", "labels", "skip")
	case 2:
		return patches(`[{"op":"add","path":"/metadata/labels","value":null}]`)
	case 3: // once and for all
		return patches(`[{"op":"add","path":"/spec/by","value":{"hook":%q}}]`, s.hook.key)
	case 4, 5: // again and again
		return patches(`[{"op":"add","path":"/spec/list/-","value":%q}]`, s.hook.Name)
	case 6, 7:
		return s.count()
	case 8:
		return s.flip("spec", "flag")
	case 9:
		return patches(`[{"op":"add","path":"/spec/size","value":%s}]`, pick(s.chance, "2", "-0", "1.25", "9007199254740993", "18446744073709551616", `"\u003c\u00e9"`, "null"))
	case 10:
		return patches(`[{"op":"move","from":"/spec/list","path":"/spec/by"},{"op":"copy","from":"/spec/by","path":"/spec/list"}]`)
	case 11:
		return patches(`[ {"op":"replace","path":"/spec","value":{ "list" : [ 1.5, {"b":1,"a":[]} ], "size":2 }} ]`)
	case 12:
		return patches(`[{"op":"add","path":"/spec/fraction","value":%s}]`, wholeFraction)
	case 13: // for this library, which does not say that there is nothing to replace
		return patches(`[{"op":"replace","path":"/spec/missing","value":%q}]`, s.hook.key)
	case 14:
		return patches(`[{"op":"add","path":"/metadata/annotations/a~1b","value":"%s"}]`, env)
	default: // strange, and an object of the same kind: any other is refused where the API server stores it
		return patches("%s", pick(s.chance, `[{"op":"add","path":"/metadata/labels","value":{"env":7}}]`, `[{"op":"add","path":"/metadata/labels","value":"x"}]`,
			`[{"op":"replace","path":"/metadata","value":"x"}]`, `[{"op":"remove","path":"/metadata"}]`, `[{"op":"add","path":"/items","value":[]}]`,
			`[{"op":"remove","path":"/spec"}]`))
	}
}

// flip adds a field, or removes it: it never comes to rest.
func (s scripting) flip(path ...string) act {
	pointer := "/" + strings.Join(path, "/")
	return act{"flips " + pointer, func(o map[string]any) oracle.Answer {
		if _, found, _ := unstructured.NestedFieldNoCopy(o, path...); found {
			return oracle.Patch(`[{"op":"remove","path":%q}]`, pointer)
		}
		if parent, _, _ := unstructured.NestedMap(o, path[:len(path)-1]...); parent == nil {
			return oracle.Allow()
		}
		return oracle.Patch(`[{"op":"add","path":%q,"value":"on"}]`, pointer)
	}}
}

// count adds one to a number.
func (s scripting) count() act {
	return act{"counts in spec.count", func(o map[string]any) oracle.Answer {
		n, _, _ := unstructured.NestedInt64(o, "spec", "count")
		return oracle.Patch(`[{"op":"add","path":"/spec/count","value":%d}]`, n+1)
	}}
}
