package chain

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// maxAuditKey is the most characters of an annotation key: the API server stores it as <entry>/<key> and takes at most
// 63 behind the slash (SEMANTICS C42).
const maxAuditKey = 63

// folder folds the calls of a review into its answer, in the order of the hooks whatever order their results came in.
type folder struct {
	options *Options
	answer  review.Answer
	done    bool
}

// finish makes the answer. status is nil for an allowed request; patch may be empty.
func (f *folder) finish(calls []*call, status *admissionv1.Status, patch []byte) {
	resp := &admissionv1.AdmissionResponse{
		Uid:     f.options.Request.Admission.GetUid(),
		Allowed: status == nil,
		Status:  status,
	}
	if status == nil && len(patch) > 0 {
		resp.Patch, resp.PatchType = patch, jsonPatch
	}
	f.answer = review.Answer{Response: resp, Revision: f.options.Revision}
	for _, c := range calls {
		f.remark(c)
	}
	if f.options.Request.Explain {
		f.answer.Outcomes = explained(calls)
	}
	f.done = true
}

// remark adds what a call says beside allow and deny: its warnings and annotations, also those of a denial (SEMANTICS
// C43), and a trace of every hook that failed open.
func (f *folder) remark(c *call) {
	if c.state != ended {
		return
	}
	resp := f.answer.Response
	if v := cmp.Or(c.result.Verdict, c.said); v != nil {
		resp.Warnings = append(resp.Warnings, v.GetWarnings()...)
		for key, value := range v.GetAuditAnnotations() {
			annotate(resp, c.hook.ID.Name+"."+key, value)
		}
	}
	if c.result.Failure != nil && c.hook.FailurePolicy == admissionregistrationv1.Ignore {
		kind := c.result.Failure.Kind
		resp.Warnings = append(resp.Warnings,
			fmt.Sprintf("hook %q failed (%s) and was skipped: its failure policy is Ignore", c.hook.ID.Name, kind))
		annotate(resp, "failed-open."+c.hook.ID.Name, kind.String())
	}
}

// annotate records an annotation under a key that the API server accepts. The first value of a key stays.
func annotate(resp *admissionv1.AdmissionResponse, key, value string) {
	key = auditKey(key)
	if resp.AuditAnnotations == nil {
		resp.AuditAnnotations = make(map[string]string)
	}
	if _, taken := resp.GetAuditAnnotations()[key]; !taken {
		resp.AuditAnnotations[key] = value
	}
}

// auditKey makes a qualified name out of any text: other characters become "_", and what is too long is cut and told
// apart by a digest. A review never fails over a key.
func auditKey(key string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, key)
	clean = strings.Trim(clean, "-_.")
	if clean != "" && len(clean) <= maxAuditKey {
		return clean
	}
	sum := sha256.Sum256([]byte(key))
	digest := hex.EncodeToString(sum[:6])
	return strings.Trim(clean[:min(len(clean), maxAuditKey-1-len(digest))]+"-"+digest, "-_.")
}

// Answer implements [Machine].
func (f *folder) Answer() (review.Answer, bool) { return f.answer, f.done }
