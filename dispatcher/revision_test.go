package dispatcher_test

import (
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// shattered is clusters that cannot be asked without a panic.
type shattered struct{ usual }

func (shattered) Cluster(string) match.Cluster { panic("boom") }

func TestAnAnswerToAPanicNamesTheRevisionThatJudged(t *testing.T) {
	snapshot, _ := match.Compile(match.Input{Revision: "r1"})
	known := shattered{usual{snapshot: snapshot}}
	d, err := dispatcher.New(dispatcher.Options{Snapshots: known, Clusters: known, Streams: inprocess.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []admissionv1.Stage{validate, mutate, admissionv1.Stage_STAGE_ADMIT} {
		a, err := d.Review(t.Context(), &review.Request{Stage: stage, Admission: &admissionv1.AdmissionRequest{Uid: "u"}})
		if err != nil || a.Response.GetAllowed() || a.Revision != "r1" || a.Response.GetAuditAnnotations()[chain.AuditRevision] != "r1" {
			t.Errorf("%s: %+v, %v", stage, a, err)
		}
	}
}
