package hostsdk

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// request is the request of a review, decoded as far as its handlers need it. It is checked before a handler sees it, so that
// the handler's reads cannot fail. nil is an empty request. Safe for concurrent use.
type request struct {
	present bool
	encoded []byte

	checking sync.Once
	wrong    error
	decoding sync.Once
	decoded  atomic.Pointer[admissionv1.AdmissionRequest]
}

// check returns why the request cannot be decoded. It is called before any other method.
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

// message returns the whole request, which is shared and never written. It is decoded once.
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

// encoding returns the encoded request, unless the whole is decoded already.
func (r *request) encoding() (encoded []byte, ok bool) {
	if r == nil || r.decoded.Load() != nil {
		return nil, false
	}
	return r.encoded, true
}

// text returns the field at a path of numbers, or the result of get for the whole.
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

// object returns an object as it was sent, likewise.
func (r *request) object(get func(*admissionv1.AdmissionRequest) *admissionv1.Object, number protowire.Number) []byte {
	encoded, ok := r.encoding()
	if !ok {
		return get(r.message()).GetRaw()
	}
	return wire.FindBytes(wire.FindBytes(encoded, number), wire.ObjectRaw)
}

// inner returns a message in the request, likewise: it is decoded without the rest.
func inner[M any, P interface {
	*M
	proto.Message
}](r *request, get func(*admissionv1.AdmissionRequest) P, number protowire.Number) P {
	encoded, ok := r.encoding()
	if !ok {
		return get(r.message())
	}
	m := P(new(M))
	_ = proto.Unmarshal(wire.FindBytes(encoded, number), m) // It is well-formed.
	return m
}
