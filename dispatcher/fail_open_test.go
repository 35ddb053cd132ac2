package dispatcher_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// opens is a bypass by which some resources of a group always fail open.
func opens(group string, resources ...string) *match.Bypass {
	return &match.Bypass{FailOpen: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
	}}}
}

// under is a dispatcher with a fail-closed hook of each stage, and a bypass. Each hook gives one answer; nil has it fail.
func under(t *testing.T, bypass *match.Bypass, condition string, answer *admissionv1.AdmissionResponse) *dispatcher.Dispatcher {
	t.Helper()
	in := input([]hook{{name: "v.test.dev"}}, []hook{{name: "m.test.dev"}})
	in.Bypasses = map[string]*match.Bypass{"c": bypass}
	if condition != "" {
		conditions := []admissionregistrationv1.MatchCondition{{Name: "c", Expression: condition}}
		in.Objects[0].Validating.Webhooks[0].MatchConditions, in.Objects[1].Mutating.Webhooks[0].MatchConditions = conditions, conditions
	}
	snapshot, _ := match.Compile(in)
	handler := func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if answer == nil {
			return nil, errors.New("broken")
		}
		return answer, nil
	}
	return inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{"m.test.dev": handler, "v.test.dev": handler})
}

func TestARequestThatAlwaysFailsOpenIsNotRefusedForAFailureAndStaysDenied(t *testing.T) {
	denies := &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "no", Code: 403}}
	for name, tt := range map[string]struct {
		bypass    *match.Bypass
		condition string
		answer    *admissionv1.AdmissionResponse
		allowed   bool
	}{
		"no list":                             {nil, "", nil, false},
		"the resource":                        {opens("", "pods"), "", nil, true},
		"every resource":                      {opens("*", "*"), "", nil, true},
		"the resource of another group":       {opens("apps", "pods"), "", nil, false},
		"its subresource":                     {opens("", "pods/status"), "", nil, false},
		"another resource":                    {opens("", "secrets"), "", nil, false},
		"a denial":                            {opens("", "pods"), "", denies, false},
		"a condition that fails":              {opens("", "pods"), "int(request.name) > 0", denies, true},
		"a condition that fails, for another": {opens("", "secrets"), "int(request.name) > 0", denies, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := under(t, tt.bypass, tt.condition, tt.answer)
			for stage, key := range map[admissionv1.Stage]string{
				admissionv1.Stage_STAGE_MUTATE: "failed-open.mutation.round_0_index_0", admissionv1.Stage_STAGE_VALIDATE: "failed-open.validating.round_0_index_0",
			} {
				answer, err := d.Review(t.Context(), podReview(stage, `{"apiVersion":"v1","kind":"Pod"}`))
				if err != nil || answer.Response.GetAllowed() != tt.allowed {
					t.Fatalf("%v: %v, error %v", stage, answer.Response, err)
				}
				loud := strings.Contains(strings.Join(answer.Response.GetWarnings(), ""), "always fail open") &&
					strings.Contains(answer.Response.GetAuditAnnotations()[key], `"bypass":"fail-open"`)
				if want := tt.allowed && tt.condition == ""; loud != want {
					t.Errorf("%v: warnings %q, annotations %q", stage, answer.Response.GetWarnings(), answer.Response.GetAuditAnnotations())
				}
			}
		})
	}
}

// The group counts by which the client asked, whatever version of the resource the API server sends.
func TestWhatAlwaysFailsOpenIsWhatTheClientAskedFor(t *testing.T) {
	for asked, allowed := range map[string]bool{"": false, "old": true} {
		r := podReview(admissionv1.Stage_STAGE_VALIDATE, `{"apiVersion":"v1","kind":"Pod"}`)
		r.Admission.RequestResource = &admissionv1.GroupVersionResource{Group: asked, Version: "v1beta1", Resource: "pods"}
		r.Admission.RequestKind = &admissionv1.GroupVersionKind{Group: asked, Version: "v1beta1", Kind: "Pod"}
		in := input([]hook{{name: "v.test.dev"}}, nil)
		equivalent := admissionregistrationv1.Equivalent
		in.Objects[0].Validating.Webhooks[0].MatchPolicy = &equivalent
		in.Bypasses = map[string]*match.Bypass{"c": opens("old", "pods")}
		snapshot, _ := match.Compile(in)
		d := inProcess(t, static{snapshot: snapshot}, nil)
		if answer, err := d.Review(t.Context(), r); err != nil || answer.Response.GetAllowed() != allowed {
			t.Errorf("asked for pods of %q: %v, error %v", asked, answer.Response, err)
		}
	}
}

// Without memory, an entry that ignores failures lets a request pass only if the bypass in force has it fail open. The bypass may be newer than the
// entry.
func TestNoMemoryOpensNoMoreThanTheListThatIsInForce(t *testing.T) {
	for name, tt := range map[string]struct {
		entry  string
		bypass *match.Bypass
		again  bool
	}{
		"it always fails open":                         {match.EntryAlwaysFailOpen, opens("", "pods"), true},
		"it does not any more":                         {match.EntryAlwaysFailOpen, nil, false},
		"it does now, by an entry for fail-open hooks": {match.EntryFailOpen, opens("", "pods"), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecodingUnder(t, tt.bypass, 8<<20, &admissionv1.AdmissionResponse{Allowed: true}, func(w *admissionregistrationv1.MutatingWebhook) {
				w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "kind", Expression: `object.kind == "Pod"`}}
			})
			answer, err := d.reviewBy(t, tt.entry, 3_500_000, emptyObjects(70_000))
			if again := errors.Is(err, review.ErrNoMemory); again != tt.again || !again && answer.Response.GetAllowed() {
				t.Errorf("error %v, answer %v", err, answer.Response)
			}
		})
	}
}
