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

// question is the review of a batch. It is written when it is first asked for, once in each version.
type question struct {
	v1, v1beta1, v1alpha1 func() (*conversion.SharedReview, error)
}

func newQuestion(r *admissionv1.AdmissionRequest) *question {
	r = withRequestKind(r)
	in := func(version string) func() (*conversion.SharedReview, error) {
		return sync.OnceValues(func() (*conversion.SharedReview, error) {
			return conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: r, ApiVersion: version})
		})
	}
	return &question{v1: in(versionV1), v1beta1: in(versionV1beta1), v1alpha1: in(versionV1alpha1)}
}

// withRequestKind is a request that says what the client asked for, as API servers always do since 1.15; those that do not
// convert nothing. What stays is shared.
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

// in is the review in a version that negotiate picked.
func (q *question) in(version string) (*conversion.SharedReview, error) {
	switch version {
	case versionV1:
		return q.v1()
	case versionV1beta1:
		return q.v1beta1()
	}
	return q.v1alpha1()
}

// payload is the body of one call: the shared review with a uid of its own. Immutable.
type payload struct {
	shared *conversion.SharedReview
	uid    []byte // as a JSON string; nothing where the version has none
}

// newPayload makes a payload. The uid needs no escaping.
func newPayload(shared *conversion.SharedReview, uid string) *payload {
	if !shared.HasUID() {
		return &payload{shared: shared}
	}
	quoted := make([]byte, 0, len(uid)+2)
	quoted = append(quoted, '"')
	quoted = append(quoted, uid...)
	return &payload{shared: shared, uid: append(quoted, '"')}
}

func (p *payload) len() int64 { return int64(p.shared.Len() + len(p.uid)) }

// piece is the i-th piece of the body; ok is false behind the last one.
func (p *payload) piece(i int) (piece []byte, ok bool) {
	tail := p.shared.Tail()
	switch {
	case i == 0:
		return p.shared.Head(), true
	case i == 1:
		return p.uid, true
	case i-2 < len(tail):
		return tail[i-2], true
	}
	return nil, false
}

// open begins a new reading of the body, for http.Request.Body and GetBody.
func (p *payload) open() io.ReadCloser { return &payloadReader{payload: p} }

// payloadReader reads a payload without joining its pieces.
type payloadReader struct {
	payload *payload
	next    int    // the piece behind rest
	rest    []byte // of the piece before next
}

// Read implements io.Reader. It fills p as far as there are bytes, over the borders of pieces, so that a small review is
// one write.
func (r *payloadReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.rest) == 0 {
			piece, ok := r.payload.piece(r.next)
			if !ok {
				break
			}
			r.rest, r.next = piece, r.next+1
			continue
		}
		copied := copy(p[n:], r.rest)
		n, r.rest = n+copied, r.rest[copied:]
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error { return nil }
