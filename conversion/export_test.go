package conversion

import (
	"bytes"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// EncodeReviewRequest appends the AdmissionReview of req to dst.
func EncodeReviewRequest(dst []byte, req *admissionv1.ReviewRequest) ([]byte, error) {
	shared, err := EncodeSharedReview(req)
	if err != nil {
		return dst, err
	}
	head, tail := shared.Pieces(req.GetRequest().GetUid())
	return append(append(dst, head...), bytes.Join(tail, nil)...), nil
}

// ContentSlowly is the original of Content.
func ContentSlowly(document []byte) (map[string]any, error) { return contentSlowly(document) }
