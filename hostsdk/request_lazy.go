package hostsdk

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// request is the request of a review, of which as much is decoded as its handlers ask for. It is checked before a handler
// sees it, so that nothing that a handler asks for can fail. nil is an empty one. Safe for concurrent use.
type request struct {
	present bool
	encoded []byte

	checking sync.Once
	wrong    error
	decoding sync.Once
	decoded  atomic.Pointer[admissionv1.AdmissionRequest]
}

// check says why the request can not be decoded. It is called before anything else.
func (r *request) check() error {
	r.checking.Do(func() {
		if r.decoded.Load() != nil || wire.WellFormed(r.encoded) {
			return
		}
		whole := &admissionv1.AdmissionRequest{}
		r.wrong = proto.Unmarshal(r.encoded, whole)
		r.decoded.Store(whole)
	})
	return r.wrong
}

// message is the whole request, which is shared and never written. It is decoded once.
func (r *request) message() *admissionv1.AdmissionRequest {
	if r == nil {
		return &admissionv1.AdmissionRequest{}
	}
	if whole := r.decoded.Load(); whole != nil {
		return whole
	}
	r.decoding.Do(func() { r.decoded.Store(wire.DecodeRequest(r.encoded)) })
	return r.decoded.Load()
}

// encoding is the encoded request, if that is the place to look: it is not once the whole is decoded.
func (r *request) encoding() (encoded []byte, ok bool) {
	if r == nil || r.decoded.Load() != nil {
		return nil, false
	}
	return r.encoded, true
}

// text is a text of the request: the field on a path of numbers, or what get makes of the whole.
func (r *request) text(get func(*admissionv1.AdmissionRequest) string, path ...protowire.Number) string {
	encoded, ok := r.encoding()
	if !ok {
		return get(r.message())
	}
	for _, number := range path {
		encoded = wire.FindBytes(encoded, number)
	}
	return string(encoded)
}

// object is an object of the request as it was sent, likewise.
func (r *request) object(get func(*admissionv1.AdmissionRequest) *admissionv1.Object, number protowire.Number) []byte {
	encoded, ok := r.encoding()
	if !ok {
		return get(r.message()).GetRaw()
	}
	return wire.FindBytes(wire.FindBytes(encoded, number), wire.ObjectRaw)
}
