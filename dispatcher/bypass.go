package dispatcher

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// AuditBypass is the key of the annotation of an answer for which no hook was asked, since the bypass of the cluster exempts the
// request: the kind of the bypass and the exempt name.
const AuditBypass = "bypass"

// maxBypassAudit bounds the value, in bytes.
const maxBypassAudit = 320

// bypass allows a request that the bypass of its cluster exempts; false for any other. In a break-glass the client gets a warning.
func (d *Dispatcher) bypass(span trace.Span, snapshot *match.Snapshot, r *review.Request, now time.Time) (review.Answer, bool) {
	exempt := snapshot.Bypass(r.Admission.GetCluster())
	kind, name := exempt.Of(r.Admission, now)
	if kind == "" {
		return review.Answer{}, false
	}
	d.observer.Bypassed(span, r.Admission.GetCluster(), kind)
	answer := review.Answer{
		Response: &admissionv1.AdmissionResponse{
			Uid: r.Admission.GetUid(), Allowed: true,
			AuditAnnotations: map[string]string{
				chain.AuditRevision: snapshot.Revision(), AuditBypass: observe.Cut(kind+": "+name, maxBypassAudit),
			},
		},
		Object: r.Admission.GetObject().GetRaw(), Revision: snapshot.Revision(),
	}
	if kind == match.BypassBreakGlass {
		answer.Response.Warnings = []string{fmt.Sprintf("no admission hook is called for cluster %s until %s: %s",
			r.Admission.GetCluster(), exempt.Until.UTC().Format(time.RFC3339), name)}
	}
	if r.Explain {
		answer.Outcomes = d.bypassedOutcomes(snapshot, r, kind+" "+name)
	}
	return answer, true
}

// bypassedOutcomes are the outcomes of the hooks whose rules match an exempt request.
func (d *Dispatcher) bypassedOutcomes(snapshot *match.Snapshot, r *review.Request, exempt string) (outcomes []*admissionv1.HookOutcome) {
	stages := []admissionv1.Stage{r.Stage}
	if r.Stage == admissionv1.Stage_STAGE_ADMIT {
		stages = []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE}
	}
	attributes := match.NewAttributes(r.Admission, d.clusterOf(r))
	for _, stage := range stages {
		for _, h := range candidates(snapshot, inStage(r, stage), attributes) {
			outcomes = append(outcomes, skippedOutcome(h, "the bypass of the cluster exempts the request: "+exempt))
		}
	}
	return outcomes
}
