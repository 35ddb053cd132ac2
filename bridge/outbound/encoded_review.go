package outbound

import (
	"io"
	"slices"
	"sync"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// The versions of AdmissionReview that are spoken, in full as a review says them.
const (
	versionV1       = "admission.k8s.io/v1"
	versionV1beta1  = "admission.k8s.io/v1beta1"
	versionV1alpha1 = "admission.k8s.io/v1alpha1"
)

// negotiate picks the first version of a hook's admissionReviewVersions that API servers speak: CreateAdmissionObjects of
// k8s.io/apiserver/pkg/admission/plugin/webhook/request (SEMANTICS C33). v1alpha1, which today's do not, is for validating
// hooks that take nothing else: those of an ExternalAdmissionHookConfiguration. Empty when there is none.
func negotiate(h *match.Hook) string {
	for _, v := range h.ReviewVersions {
		switch v {
		case "v1":
			return versionV1
		case "v1beta1":
			return versionV1beta1
		}
	}
	if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE && slices.Contains(h.ReviewVersions, "v1alpha1") {
		return versionV1alpha1
	}
	return ""
}

// encodedReview is the review of a call set. It is encoded at its first use, once in each version.
type encodedReview struct {
	request *admissionv1.AdmissionRequest

	mu       sync.Mutex
	versions map[string]*conversion.SharedReview
}

func newEncodedReview(r *admissionv1.AdmissionRequest) *encodedReview {
	return &encodedReview{request: withRequestKind(r), versions: make(map[string]*conversion.SharedReview, 1)}
}

// in is the review in a version that negotiate picked.
func (r *encodedReview) in(version string) (*conversion.SharedReview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if encoded := r.versions[version]; encoded != nil {
		return encoded, nil
	}
	encoded, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: r.request, ApiVersion: version})
	if err == nil {
		r.versions[version] = encoded
	}
	return encoded, err
}

// withRequestKind fills in the kind and resource that the client asked for, as API servers do since 1.15; older ones convert
// nothing. All else is shared.
func withRequestKind(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	if r.GetRequestKind() != nil {
		return r
	}
	return &admissionv1.AdmissionRequest{
		Kind: r.GetKind(), Resource: r.GetResource(), SubResource: r.GetSubResource(),
		RequestKind: r.GetKind(), RequestResource: r.GetResource(), RequestSubResource: r.GetSubResource(),
		Name: r.GetName(), Namespace: r.GetNamespace(), Operation: r.GetOperation(), UserInfo: r.GetUserInfo(),
		Object: r.GetObject(), OldObject: r.GetOldObject(), Options: r.GetOptions(), DryRun: r.DryRun,
	}
}

// pieces are the body of a request, parts of it shared with other requests. Immutable.
type pieces struct {
	head []byte
	tail [][]byte
}

// reviewBody is the shared review with a uid of its own.
func reviewBody(r *conversion.SharedReview, uid string) pieces {
	head, tail := r.Pieces(uid)
	return pieces{head, tail}
}

func (p pieces) len() int64 {
	n := len(p.head)
	for _, piece := range p.tail {
		n += len(piece)
	}
	return int64(n)
}

// open begins a new reading of the body, for http.Request.Body and GetBody.
func (p pieces) open() io.ReadCloser { return &bodyReader{p} }

// bodyReader reads pieces without joining them. Its head and tail are the unread rest.
type bodyReader struct{ pieces }

// Read implements io.Reader. It fills p over the borders of pieces, so that a small review is one write.
func (r *bodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) && (len(r.head) > 0 || len(r.tail) > 0) {
		if len(r.head) == 0 {
			r.head, r.tail = r.tail[0], r.tail[1:]
		}
		copied := copy(p[n:], r.head)
		n, r.head = n+copied, r.head[copied:]
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (*bodyReader) Close() error { return nil }
