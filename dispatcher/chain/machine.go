package chain

import (
	"cmp"
	"iter"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// machine is the common part of [Mutate] and [Validate].
type machine struct {
	options Options
	calls   []*call // those that count, in the order of their hooks whatever the order of their results
	toStart []Start // results of Next
	cancel  []int
	answer  review.Answer
	done    bool
}

func (m *machine) fail(status *admissionv1.Status) {
	m.finish(status, nil)
	m.answer.Failed = true
}

// finish makes the answer. status is nil for an allowed request.
func (m *machine) finish(status *admissionv1.Status, patch []byte) {
	resp := &admissionv1.AdmissionResponse{
		Uid:              m.options.Request.Admission.GetUid(),
		Allowed:          status == nil,
		Status:           status,
		Warnings:         warningsOf(m.calls),
		AuditAnnotations: annotationsOf(&m.options, m.calls),
	}
	if status == nil && len(patch) > 0 {
		resp.Patch, resp.PatchType = patch, jsonPatch
	}
	m.answer = review.Answer{Response: resp, Revision: m.options.Revision, FailedOpen: slices.ContainsFunc(m.calls, (*call).failedOpen)}
	if m.options.Request.Explain {
		m.answer.Outcomes = hookOutcomes(m.calls)
	}
	m.done = true
}

// Answer implements [Machine].
func (m *machine) Answer() (review.Answer, bool) { return m.answer, m.done }

// reportedVerdict returns the verdict whose warnings and audit annotations count; nil if there is none.
func (c *call) reportedVerdict() *admissionv1.AdmissionResponse {
	if c.state != ended {
		return nil
	}
	return cmp.Or(c.result.Verdict, c.replacedVerdict)
}

func earliestDeadline(calls iter.Seq[*call]) (first time.Time) {
	for c := range calls {
		if c.state == started && (first.IsZero() || c.Deadline.Before(first)) {
			first = c.Deadline
		}
	}
	return first
}
