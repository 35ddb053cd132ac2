package conversion

import (
	"encoding/base64"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// EncodeReview appends to dst the AdmissionReview that answers with resp, in resp.api_version, as Kubernetes' own types
// would be written; maps come out sorted. Invalid UTF-8 is replaced by U+FFFD. In v1alpha1 there is a place for the verdict
// and its status alone: uid, warnings and audit annotations stay behind. The error is an *Error: there is no response,
// api_version is none that DecodeReview reads, or a patch is to be allowed in v1alpha1.
func EncodeReview(dst []byte, resp *admissionv1.ReviewResponse) ([]byte, error) {
	if !supported(resp.GetApiVersion()) {
		return dst, unencodable("cannot answer in apiVersion %q: it must be the apiVersion of the review", resp.GetApiVersion())
	}
	if resp.GetResponse() == nil {
		return dst, unencodable("cannot answer without a response")
	}
	const rest = 512 // A usual answer without its patch.
	w := jsonWriter(slices.Grow(dst, rest+base64.StdEncoding.EncodedLen(len(resp.GetResponse().GetPatch()))))
	w.openReview(resp.GetApiVersion())
	if resp.GetApiVersion() == versionV1alpha1 {
		if resp.GetResponse().GetAllowed() && len(resp.GetResponse().GetPatch()) > 0 {
			return dst, unencodable("cannot answer with a patch in apiVersion %q, which has none", versionV1alpha1)
		}
		w.reviewStatus(resp.GetResponse())
	} else {
		w.response(resp.GetResponse())
	}
	w.raw('}')
	return w, nil
}

// openReview begins an AdmissionReview. It writes the opening bracket itself.
func (w *jsonWriter) openReview(apiVersion string) {
	w.raw('{')
	w.text("kind", reviewKind)
	w.text("apiVersion", apiVersion)
}

// response writes AdmissionResponse of k8s.io/api/admission/v1.
func (w *jsonWriter) response(r *admissionv1.AdmissionResponse) {
	w.name("response")
	w.open('{')
	w.text("uid", r.GetUid())
	w.boolean("allowed", r.GetAllowed())
	if r.GetStatus() != nil {
		w.status(r.GetStatus())
	}
	if len(r.GetPatch()) > 0 {
		w.name("patch")
		w.raw('"')
		*w = base64.StdEncoding.AppendEncode(*w, r.GetPatch())
		w.raw('"')
	}
	w.optional("patchType", r.GetPatchType())
	writeMap(w, "auditAnnotations", r.GetAuditAnnotations(), func(text string) { *w = appendString(*w, text) })
	if len(r.GetWarnings()) > 0 {
		w.name("warnings")
		w.texts(r.GetWarnings())
	}
	w.close('}')
}

// status writes Status of k8s.io/apimachinery/pkg/apis/meta/v1.
func (w *jsonWriter) status(s *admissionv1.Status) {
	w.name("status")
	w.open('{')
	w.name("metadata")
	w.raw('{', '}')
	w.optional("status", s.GetStatus())
	w.optional("message", s.GetMessage())
	w.optional("reason", s.GetReason())
	if s.GetDetails() != nil {
		w.details(s.GetDetails())
	}
	w.integer("code", s.GetCode())
	w.close('}')
}

func (w *jsonWriter) details(d *admissionv1.StatusDetails) {
	w.name("details")
	w.open('{')
	w.optional("name", d.GetName())
	w.optional("group", d.GetGroup())
	w.optional("kind", d.GetKind())
	w.optional("uid", d.GetUid())
	if len(d.GetCauses()) > 0 {
		w.name("causes")
		w.open('[')
		for _, cause := range d.GetCauses() {
			w.open('{')
			w.optional("reason", cause.GetReason())
			w.optional("message", cause.GetMessage())
			w.optional("field", cause.GetField())
			w.close('}')
		}
		w.close(']')
	}
	w.integer("retryAfterSeconds", d.GetRetryAfterSeconds())
	w.close('}')
}
