package chain

import (
	"cmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// folder folds the calls of a review into its answer, in the order of the hooks.
type folder struct {
	options *Options
	answer  review.Answer
	done    bool
}

// allow makes the answer of an allowed request; patch may be empty.
func (f *folder) allow(calls []*call, patch []byte) { f.finish(calls, nil, patch) }

// deny makes the answer of a request that a verdict denied.
func (f *folder) deny(calls []*call, status *admissionv1.Status) { f.finish(calls, status, nil) }

// fail makes the answer of a request that was refused by a failure or an error.
func (f *folder) fail(calls []*call, status *admissionv1.Status) {
	f.finish(calls, status, nil)
	f.answer.Failed = true
}

// finish makes the answer. status is nil for an allowed request.
func (f *folder) finish(calls []*call, status *admissionv1.Status, patch []byte) {
	resp := &admissionv1.AdmissionResponse{
		Uid:              f.options.Request.Admission.GetUid(),
		Allowed:          status == nil,
		Status:           status,
		Warnings:         warningsOf(calls),
		AuditAnnotations: annotationsOf(f.options, calls),
	}
	if status == nil && len(patch) > 0 {
		resp.Patch, resp.PatchType = patch, jsonPatch
	}
	f.answer = review.Answer{Response: resp, Revision: f.options.Revision}
	if f.options.Request.Explain {
		f.answer.Outcomes = hookOutcomes(calls)
	}
	f.done = true
}

// reportedVerdict returns the verdict whose warnings and audit annotations count; nil if there is none.
func (c *call) reportedVerdict() *admissionv1.AdmissionResponse {
	if c.state != ended {
		return nil
	}
	return cmp.Or(c.result.Verdict, c.replacedVerdict)
}

// Answer implements [Machine].
func (f *folder) Answer() (review.Answer, bool) { return f.answer, f.done }
