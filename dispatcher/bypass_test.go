package dispatcher_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

func TestABypassAllowsWithoutAskingHooksAndSaysSo(t *testing.T) {
	denying := func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{}, nil
	}
	stages := []admissionv1.Stage{
		admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_REINVOKE, admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_ADMIT,
	}
	for name, tt := range map[string]struct {
		bypass     *match.Bypass
		annotation string // empty: hooks judge
		warning    string
	}{
		"none":                  {nil, "", ""},
		"of another namespace":  {&match.Bypass{Namespaces: []string{"kube-system"}}, "", ""},
		"of the namespace":      {&match.Bypass{Namespaces: []string{"default"}}, "namespace: default", ""},
		"a break-glass":         {&match.Bypass{Until: time.Now().Add(time.Hour), Reason: "INC-42"}, "break-glass: INC-42", "no admission hook is called for cluster c until "},
		"an ended break-glass":  {&match.Bypass{Until: time.Now().Add(-time.Hour), Reason: "INC-42"}, "", ""},
		"of some other cluster": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input([]hook{{name: "v"}}, []hook{{name: "m", needed: true}})
			in.Bypasses = map[string]*match.Bypass{"c": tt.bypass, "other": {Namespaces: []string{"default"}}}
			snapshot, _ := match.Compile(in)
			d := inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{"m": denying, "v": denying})
			for _, stage := range stages {
				answer, err := d.Review(t.Context(), podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`))
				if err != nil {
					t.Fatal(err)
				}
				r := answer.Response
				if r.GetAllowed() != (tt.annotation != "") || r.GetAuditAnnotations()[dispatcher.AuditBypass] != tt.annotation || r.GetUid() != "u" {
					t.Errorf("%v: %v", stage, r)
				}
				if len(r.GetWarnings()) != min(1, len(tt.warning)) || !strings.Contains(strings.Join(r.GetWarnings(), ""), tt.warning) {
					t.Errorf("%v: warnings %q", stage, r.GetWarnings())
				}
				if tt.annotation != "" && (string(answer.Object) != `{"kind":"Pod","apiVersion":"v1"}` || answer.Revision != "r1") {
					t.Errorf("%v: object %s, revision %s", stage, answer.Object, answer.Revision)
				}
				if tt.annotation != "" && (len(answer.Outcomes) == 0 || slices.ContainsFunc(answer.Outcomes, func(o *admissionv1.HookOutcome) bool {
					return o.GetOutcome() != "skipped" || !strings.Contains(o.GetReason(), "bypass of the cluster")
				})) {
					t.Errorf("%v: outcomes %v", stage, answer.Outcomes)
				}
			}
		})
	}
}
