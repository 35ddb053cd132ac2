package match_test

import (
	"context"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Conditions are evaluated within the time of the review, beside Kubernetes' bound on their cost.
func TestConditionsStopWhenTheirTimeIsOver(t *testing.T) {
	hook := compileOne(t, conditional(`object.x.all(a, object.x.all(b, a + b >= 0))`))
	req := createPod()
	req.Object = &admissionv1.Object{Raw: []byte(`{"kind":"Pod","apiVersion":"v1","x":[` + strings.Repeat("0,", 200) + `0]}`)}
	c := cluster{authorizer: permissions()}
	if d := hook.ShouldCall(t.Context(), match.NewAttributes(req, c)); !d.Match {
		t.Fatalf("in time: %+v", d)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	d := hook.ShouldCall(over, match.NewAttributes(req, c))
	if d.Err == nil || !strings.Contains(d.Err.Error(), "interrupted") {
		t.Errorf("%+v, want an evaluation that was interrupted", d)
	}
}
