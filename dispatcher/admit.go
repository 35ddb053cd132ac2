package dispatcher

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// admit runs all stages of a review for a direct caller: the mutating hooks with their second round, then the validating hooks on the mutated object,
// under one snapshot and one deadline. A denial in either stage is the answer. The patch comes from the mutating hooks. Warnings, annotations and
// outcomes come from both stages, the mutating hooks' first. The caller does the work of an API server between its stages (in-tree plugins, schema
// validation).
func (d *Dispatcher) admit(
	ctx context.Context, gone <-chan struct{}, snapshot *match.Snapshot, r *review.Request, held time.Duration,
) (review.Answer, error) {
	first, second := inStage(r, admissionv1.Stage_STAGE_MUTATE), inStage(r, admissionv1.Stage_STAGE_VALIDATE)
	second.Received = time.Time{}
	attributes := match.NewAttributes(r.Admission, d.clusterOf(r))
	validating := candidates(snapshot, second, attributes) // the rules do not depend on the object

	early := &bounded{Context: ctx, deadline: mutateBy(ctx, time.Now(), validating)}
	defer early.release()
	mutated, err := d.newRun(early, snapshot, first, held).judge(early, gone)
	switch {
	case err != nil:
		return review.Answer{}, err
	case !mutated.Response.GetAllowed():
		if r.Explain {
			mutated.Outcomes = append(mutated.Outcomes, notReached(validating)...)
		}
		return mutated, nil
	}
	if !bytes.Equal(mutated.Object, r.Admission.GetObject().GetRaw()) {
		second.Admission = message(r.Admission, chain.Object{Raw: mutated.Object, Revision: 1}, nil)
	}
	validated, err := d.newRun(ctx, snapshot, second, 0).judge(ctx, gone)
	if err != nil {
		return review.Answer{}, err
	}
	return joined(mutated, validated), nil
}

func inStage(r *review.Request, stage admissionv1.Stage) *review.Request {
	one := *r
	one.Stage = stage
	return &one
}

// mutateBy returns the deadline of the mutating hooks. It leaves the validating hooks their longest timeout, but at most half of the time; shadow
// hooks need none. Otherwise a fail-open mutating hook that hangs would leave no time to the validating hooks, and a fail-closed hook would refuse
// the request.
func mutateBy(ctx context.Context, now time.Time, validating []*match.Hook) time.Time {
	deadline, _ := ctx.Deadline()
	var need time.Duration // the longest: validating hooks are called concurrently
	for _, h := range validating {
		if !h.Route.Shadow {
			need = max(need, h.Timeout)
		}
	}
	return deadline.Add(-min(need, deadline.Sub(now)/2))
}

// notReached returns the outcomes of validating hooks after the mutating stage has refused the request.
func notReached(hooks []*match.Hook) []*admissionv1.HookOutcome {
	outcomes := make([]*admissionv1.HookOutcome, 0, len(hooks))
	for _, h := range hooks {
		outcomes = append(outcomes, skippedOutcome(h, "the mutating hooks have refused the request"))
	}
	return outcomes
}

// joined returns the answer of both stages; mutated allows. If both stages have an annotation key, mutated wins.
func joined(mutated, validated review.Answer) review.Answer {
	m, v := mutated.Response, validated.Response
	annotations := make(map[string]string, len(m.GetAuditAnnotations())+len(v.GetAuditAnnotations()))
	maps.Copy(annotations, v.GetAuditAnnotations())
	maps.Copy(annotations, m.GetAuditAnnotations())
	response := &admissionv1.AdmissionResponse{
		Uid: v.GetUid(), Allowed: v.GetAllowed(), Status: v.GetStatus(),
		Warnings: slices.Concat(m.GetWarnings(), v.GetWarnings()), AuditAnnotations: annotations,
	}
	if v.GetAllowed() {
		response.Patch, response.PatchType = m.GetPatch(), m.GetPatchType()
	}
	return review.Answer{
		Response: response, Failed: validated.Failed, FailedOpen: mutated.FailedOpen || validated.FailedOpen, Object: mutated.Object, Revision: validated.Revision,
		Outcomes: slices.Concat(mutated.Outcomes, validated.Outcomes),
	}
}
