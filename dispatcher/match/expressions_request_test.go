package match_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// An object that is not JSON shows who reads it. Those who do not decide as the original does, which has an object.
func TestConditionsThatLookAtTheRequestAloneReadNoObject(t *testing.T) {
	k, req := newKubernetes(t), createPod()
	req.UserInfo = &admissionv1.UserInfo{Username: "jane", Groups: []string{"ops"}}
	req.Options = &admissionv1.Object{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)}
	for expression, reads := range map[string]bool{
		`request.namespace != "kube-system"`:                                         false,
		`!("system:nodes" in request.userInfo.groups)`:                               false,
		`request.operation == "DELETE" || request.resource.resource == "pods"`:       false,
		`authorizer.group("").resource("pods").check("get").allowed()`:               false,
		`authorizer.requestResource.check("get").allowed()`:                          false,
		`authorizer.serviceAccount("dev", "a").path("/open").check("get").allowed()`: false,
		`namespaceObject == null`:                                                    false,
		`has(request.options) && request.options.kind == "CreateOptions"`:            false,
		`request.?namespace.orValue("object") == "object"`:                           false,
		`type(request.name) == string && duration("1s") < duration("2s")`:            false,
		`"object" == request.name || r'oldObject' == "" // object`:                   false,
		`{"object": request.name}.object == "p"`:                                     false,
		`[1, 2].all(object, object > 0)`:                                             false,
		`[[1], [2]].exists(object, object.all(oldObject, oldObject > 1))`:            false,
		`["p"].exists(object, .object == request.name)`:                              false, // the innermost counts, also here
		`["p"].map(oldObject, oldObject + "q")[0] == request.name`:                   false,
		`[1].all(x, [2].all(y, request.userInfo.groups.all(z, z != "")))`:            false,
		`object != null`:    true,
		`.object != null`:   true,
		`oldObject == null`: true,
		`has(object.spec)`:  true,
		`has(object.spec.containers) && object.spec.containers.all(c, c.name != "")`:       true,
		`object.?spec.?containers.hasValue()`:                                              true,
		`object[?"spec"].hasValue()`:                                                       true,
		`[object].all(object, object != null)`:                                             true, // the list is outside of its scope
		`[1].all(object, object > 0) && object != null`:                                    true,
		`[1].all(x, [2].all(y, [request.name, object].size() > x))`:                        true,
		`request.operation == "DELETE" || request.namespace != "dev" || has(object.kind)`:  true,
		`{"a": object}["a"] != null`:                                                       true,
		`optional.ofNonZeroValue(oldObject).optMap(object, object.size()).orValue(0) == 0`: true,
		`dyn(object) != null`:                                                              true,
		`type(object) != string`:                                                           true,
		`true ? true : object`:                                                             true, // or so it may be
	} {
		t.Run(expression, func(t *testing.T) {
			w := conditional(expression)
			hook := compileOne(t, w)
			c := cluster{authorizer: permissions()}
			k.in(c)
			a, err := k.oracle.Attributes(req)
			if err != nil {
				t.Fatal(err)
			}
			sent, _ := k.sent(t, req, a, *pods("v1"))
			want := k.shouldCall(t, webhook.NewMutatingWebhookAccessor("c/hook.io/0", "c", &w), a)
			if diff := differ(seenFrom(*pods("v1"), want), hook.ShouldCall(t.Context(), match.NewAttributes(sent, c))); diff != "" {
				t.Errorf("the decision (-want +got):\n%s", diff)
			}
			sent.Object, sent.OldObject = &admissionv1.Object{Raw: []byte("not JSON")}, nil
			if got := outcome(hook.ShouldCall(t.Context(), match.NewAttributes(sent, c))); (got == "500") != reads {
				t.Errorf("without JSON: %s, want the object to be read: %v", got, reads)
			}
		})
	}
}

// conditional is a hook for everything that the conditions let through.
func conditional(expressions ...string) admissionregistrationv1.MutatingWebhook {
	w := mutating("", "c", "hook.io").Mutating.Webhooks[0]
	w.NamespaceSelector, w.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{} // as the API server stores them
	for i, e := range expressions {
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: e})
	}
	return w
}

// One condition that reads the object is enough. A condition that does not compile may have read it, and counts the same.
func TestOneConditionReadsTheObjectForAll(t *testing.T) {
	req := createPod()
	req.Object = &admissionv1.Object{Raw: []byte("not JSON")}
	for want, conditions := range map[string][]string{
		"match":              {`request.name == "p"`, `request.namespace == "dev"`},
		match.SkipConditions: {`request.name == "p"`, `request.namespace == "prod"`},
		"403":                {`request.name == "p"`, `request.userInfo.extra["team"][0] == "a"`},
		"500":                {`request.name == "p"`, `request.namespace == "prod"`, `object != null`},
	} {
		if got := outcome(compileOne(t, conditional(conditions...)).ShouldCall(t.Context(), match.NewAttributes(req, namespaces{}))); got != want {
			t.Errorf("%q: %s, want %s", conditions, got, want)
		}
	}
	for _, broken := range []string{`syntax error`, `"not a bool"`, `request.object == null`, `variables.a == 1`, `params == null`} {
		hook := compileOne(t, conditional(`request.namespace == "prod"`, broken))
		if got := outcome(hook.ShouldCall(t.Context(), match.NewAttributes(req, namespaces{}))); got != "500" {
			t.Errorf("%q: %s, want 500", broken, got)
		}
	}
}

// Nothing that is done for a condition about the request grows with the object.
func TestConditionsThatLookAtTheRequestAloneAllocateTheSameForEveryObject(t *testing.T) {
	hook := compileOne(t, conditional(`request.namespace != "dev"`))
	allocations := func(containers int) float64 {
		req := updateOf(podOf(containers))
		return testing.AllocsPerRun(100, func() {
			if d := hook.ShouldCall(t.Context(), match.NewAttributes(req, namespaces{})); d.Skip != match.SkipConditions {
				t.Fatalf("%+v", d)
			}
		})
	}
	if small, large := allocations(1), allocations(500); large > small {
		t.Errorf("%v allocations for a large object, %v for a small one", large, small)
	}
}

// Kubernetes converts the object before it looks at any condition (deviation M4).
func TestAConditionThatLooksAtTheRequestAloneIsDecidedBeforeTheObjectIsConverted(t *testing.T) {
	closed := errors.New("closed")
	for expression, want := range map[string]string{`request.namespace == "dev"`: "match", `request.namespace == "prod"`: match.SkipConditions} {
		w, equivalent, ignore := conditional(expression), admissionregistrationv1.Equivalent, admissionregistrationv1.Ignore
		w.Rules, w.MatchPolicy, w.FailurePolicy = rule("*", "apps", "v1", "deployments"), &equivalent, &ignore
		req := requestBy(deployments()[3])
		req.Namespace = "dev"
		lab := &laboratory{ways: deployments(), convertError: closed}
		a := match.NewAttributes(req, lab)
		d := compileOne(t, w).ShouldCall(t.Context(), a)
		if outcome(d) != want || len(lab.asked) > 0 {
			t.Errorf("%s: %s after the conversions %q, want %s and none", expression, outcome(d), lab.asked, want)
		}
		if _, _, err := a.In(t.Context(), d.As); !errors.Is(err, closed) {
			t.Errorf("%s: what a hook would be sent: error %v", expression, err)
		}
	}
}

// podOf is a Pod with many containers: 85 of them are about 20 kB.
func podOf(containers int) []byte {
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"dev"}},"spec":{"containers":[%s]}}`,
		bytes.Join(slices.Repeat([][]byte{[]byte(`{"name":"c","image":"example.com/c:1","args":["--verbose","--port=8080"],"env":[{"name":"A","value":"b"}],` +
			`"resources":{"limits":{"cpu":"1","memory":"64Mi"}},"ports":[{"containerPort":8080}],"volumeMounts":[{"name":"v","mountPath":"/v"}]}`)}, containers), []byte(",")))
}

// updateOf is an update of a Pod that changes nothing.
func updateOf(pod []byte) *admissionv1.AdmissionRequest {
	req := createPod()
	req.Operation, req.Object = "UPDATE", &admissionv1.Object{Raw: pod}
	req.OldObject = req.GetObject()
	return req
}
