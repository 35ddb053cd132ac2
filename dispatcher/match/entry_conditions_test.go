package match_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const inNamespace = `!has(request.namespace) || (request.namespace != "kube-system")`

func TestAnAPIServerDecidesWhatCannotFailAndIsTheSameInEveryVersion(t *testing.T) {
	for expression, want := range map[string][]string{
		`request.namespace != "kube-system"`:                                               {inNamespace},
		"request.namespace   !=\n 'kube-system' // nobody":                                 {inNamespace},
		`request.namespace != "kube-system" && object.kind == "Pod"`:                       {inNamespace},
		`(object.kind == "Pod" && request.namespace != "kube-system") && has(object.spec)`: {inNamespace},
		`!("system:nodes" in request.userInfo.groups)`:                                     {`!has(request.userInfo.groups) || (!("system:nodes" in request.userInfo.groups))`},
		`request.namespace == "a" || request.namespace == request.name`: {
			`!has(request.name) || !has(request.namespace) || (request.namespace == "a" || request.namespace == request.name)`,
		},
		`!(request.resource.group == "coordination.k8s.io" && request.resource.resource in ["leases"])`: {
			`!(request.resource.group == "coordination.k8s.io" && request.resource.resource in ["leases"])`,
		},
		`has(request.subResource) ? request.operation == "CREATE" : true`: {`has(request.subResource) ? (request.operation == "CREATE") : true`},
		`request.userInfo.username.matches("^system:")`:                   {`!has(request.userInfo.username) || (request.userInfo.username.matches("^system:"))`},
		`request.userInfo.username.matches(request.name)`:                 nil, // no pattern, perhaps
		`request.kind.version == "v1"`:                                    nil, // the hook and the entry may see two versions
		`request.requestResource.version == "v1"`:                         nil, // nobody needs it
		`object.metadata.namespace != "kube-system"`:                      nil,
		`request.namespace != "kube-system" || has(object.spec)`:          nil,
		`authorizer.group("").resource("pods").check("get").allowed()`:    nil,
		`request.userInfo.groups[0] != "a"`:                               nil, // fails without groups
		`request.userInfo.groups.exists(g, g == "a")`:                     nil, // costs more than the list is long
		`request.userInfo.extra["a"][0] == "b"`:                           nil,
		`request.uid != ""`:                                               nil,
		`request.?namespace.orValue("a") == "a"`:                          nil,
		`int(request.name) > 1`:                                           nil,
		`request.nonsense == "a"`:                                         nil, // does not compile
		`true`:                                                            nil,
		`request.name != "` + strings.Repeat("a", 1024-len(`!has(request.name) || (request.name != "")`)) + `"`: {
			`!has(request.name) || (request.name != "` + strings.Repeat("a", 1024-len(`!has(request.name) || (request.name != "")`)) + `")`,
		},
		`request.name != "` + strings.Repeat("a", 1025-len(`!has(request.name) || (request.name != "")`)) + `"`: nil, // too long
	} {
		h := hookOf(t, expression)
		if diff := cmp.Diff(want, h.EntryConditions(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
		for _, condition := range h.EntryConditions() { // it has the same meaning when it is read again
			if diff := cmp.Diff([]string{condition}, hookOf(t, condition).EntryConditions()); diff != "" && !strings.Contains(condition, "!has(") {
				t.Errorf("%s (-want +got):\n%s", expression, diff)
			}
		}
	}
}

// If a condition of the entry is false, the conditions of the hook are false too, and do not fail.
func TestAnEntryKeepsOutOnlyWhatTheHookKeepsOut(t *testing.T) {
	bare := func(namespace string, groups ...string) *admissionv1.AdmissionRequest {
		r := createPod()
		r.Namespace, r.UserInfo = namespace, &admissionv1.UserInfo{Username: "jane", Groups: groups}
		return r
	}
	for _, expression := range []string{
		`request.namespace != "kube-system"`,
		`request.namespace != "kube-system" && int(request.name) > 1`,
		`int(request.name) > 1 && !(request.namespace in ["kube-system", "other"])`,
		`!("ops" in request.userInfo.groups) && request.namespace == "dev"`,
		`"ops" in request.userInfo.groups ? request.namespace == "dev" : request.name.startsWith("q")`,
	} {
		for _, req := range []*admissionv1.AdmissionRequest{
			bare(""), bare("dev"), bare("kube-system"), bare("dev", "ops"), bare("kube-system", "ops", "dev"), bare("", "ops"),
		} {
			h := hookOf(t, expression)
			entry := outcome(hookOf(t, h.EntryConditions()...).ShouldCall(t.Context(), match.NewAttributes(req, namespaces{})))
			alone := outcome(h.ShouldCall(t.Context(), match.NewAttributes(req, namespaces{})))
			if entry != "match" && alone != match.SkipConditions || entry != "match" && entry != match.SkipConditions {
				t.Errorf("%s of %v: the entry %s, the hook %s", expression, req, entry, alone)
			}
		}
	}
}

// Entries were made for the conditions that a hook had. Others make another plan, except where no entry can have them.
func TestAPlanKnowsTheConditionsThatEntriesHave(t *testing.T) {
	planOf := func(expressions ...string) string {
		h := hookOf(t, expressions...)
		return match.NewEntry(match.EntryFailClosed, 1e9, []*match.Hook{h}, nil).String()
	}
	const condition = `request.namespace != "kube-system"`
	if planOf(condition) == planOf() {
		t.Error("a condition that the entry may have is not in the plan")
	}
	if planOf(condition) != planOf(`request.namespace!='kube-system'`) || planOf() != planOf(`has(object.spec)`) {
		t.Error("the plan changes where the entry does not")
	}
}

func hookOf(t *testing.T, expressions ...string) *match.Hook {
	t.Helper()
	return compileOne(t, conditional(expressions...))
}
