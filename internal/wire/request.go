package wire

import (
	"slices"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// MaxPieces is how many pieces a [Body] consists of at most: two for each of the three objects of a request.
const MaxPieces = 6

// Body is the last fields of an encoded Review: its trace, and its AdmissionRequest as tag, length, message. They are the same for every host
// that gets the request, so they are made once and shared. Immutable; the zero value is no field at all.
type Body struct {
	buffers [][]byte
	length  int
}

// Buffers returns the body in pieces; concatenated they are the fields. The objects among the pieces are the request's
// own, not copies. Neither the list nor the pieces may be changed.
func (b Body) Buffers() [][]byte { return b.buffers }

// Len is the length of the body in bytes.
func (b Body) Len() int { return b.length }

// EncodeBody encodes a request and the trace of its review once for all hosts. span is the review's; invalid without a trace. req must not
// change as long as the body is in use. A string that is not UTF-8, which protobuf forbids, is mended with U+FFFD rather than sent.
func EncodeBody(req *admissionv1.AdmissionRequest, span trace.SpanContext) Body {
	objects := [...]struct {
		field  protowire.Number
		object *admissionv1.Object
	}{{RequestObject, req.GetObject()}, {RequestOldObject, req.GetOldObject()}, {RequestOptions, req.GetOptions()}}

	// Everything but the objects' bytes goes into one buffer. cuts are the places in it where these belong.
	var usual [traceBytes]byte
	traced := appendTrace(usual[:0], span)
	head := len(traced) + PrefixBytes
	b := appendRequest(make([]byte, head, max(head, 1024)), req)
	var cuts [len(objects)]int
	size := -head
	for i, o := range objects {
		if o.object != nil {
			b = appendObjectHead(b, o.field, o.object)
			size += len(o.object.GetRaw())
		}
		cuts[i] = len(b)
	}
	size += len(b)

	start := len(b) - len(Prefix(b, head, ReviewRequest, size)) - len(traced)
	copy(b[start:], traced)
	body := Body{buffers: make([][]byte, 0, MaxPieces), length: head - start + size}
	for i, o := range objects {
		body.buffers = appendPiece(body.buffers, b[start:cuts[i]:cuts[i]])
		body.buffers = appendPiece(body.buffers, o.object.GetRaw())
		start = cuts[i]
	}
	return body
}

func appendPiece(buffers [][]byte, piece []byte) [][]byte {
	if len(piece) == 0 {
		return buffers
	}
	return append(buffers, piece)
}

// appendRequest appends all fields of an AdmissionRequest but the objects. Their order is free in protobuf; the objects'
// are written last, so that all of this is one piece.
func appendRequest(b []byte, r *admissionv1.AdmissionRequest) []byte {
	b = AppendText(b, RequestUID, r.GetUid())
	b = AppendText(b, RequestCluster, r.GetCluster())
	b = appendKind(b, RequestKind, r.GetKind())
	b = appendResource(b, RequestResource, r.GetResource())
	b = AppendText(b, RequestSubResource, r.GetSubResource())
	b = appendKind(b, RequestRequestKind, r.GetRequestKind())
	b = appendResource(b, RequestRequestResource, r.GetRequestResource())
	b = AppendText(b, RequestRequestSubResource, r.GetRequestSubResource())
	b = AppendText(b, RequestName, r.GetName())
	b = AppendText(b, RequestNamespace, r.GetNamespace())
	b = AppendText(b, RequestOperation, r.GetOperation())
	if u := r.GetUserInfo(); u != nil {
		b = appendUser(b, u)
	}
	if r != nil && r.DryRun != nil {
		b = protowire.AppendTag(b, RequestDryRun, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(r.GetDryRun()))
	}
	b = AppendNumber(b, RequestObjectRevision, uint64(r.GetObjectRevision()))
	b = AppendNumber(b, RequestProjection, uint64(r.GetProjection()))
	return append(b, r.ProtoReflect().GetUnknown()...)
}

func appendKind(b []byte, field protowire.Number, k *admissionv1.GroupVersionKind) []byte {
	if k == nil {
		return b
	}
	return appendGroupVersion(b, field, k.GetGroup(), k.GetVersion(), k.GetKind())
}

func appendResource(b []byte, field protowire.Number, r *admissionv1.GroupVersionResource) []byte {
	if r == nil {
		return b
	}
	return appendGroupVersion(b, field, r.GetGroup(), r.GetVersion(), r.GetResource())
}

func appendGroupVersion(b []byte, field protowire.Number, group, version, name string) []byte {
	return AppendMessage(b, field, func(b []byte) []byte {
		b = AppendText(b, GroupVersionGroup, group)
		b = AppendText(b, GroupVersionVersion, version)
		return AppendText(b, GroupVersionName, name)
	})
}

func appendUser(b []byte, u *admissionv1.UserInfo) []byte {
	return AppendMessage(b, RequestUserInfo, func(b []byte) []byte {
		b = AppendText(b, UserInfoUsername, u.GetUsername())
		b = AppendText(b, UserInfoUID, u.GetUid())
		b = appendItems(b, UserInfoGroups, u.GetGroups())
		if len(u.GetExtra()) == 0 {
			return b
		}
		keys := make([]string, 0, len(u.GetExtra()))
		for key := range u.GetExtra() {
			keys = append(keys, key)
		}
		slices.Sort(keys) // so that equal requests are equal bytes
		for _, key := range keys {
			b = AppendMessage(b, UserInfoExtra, func(b []byte) []byte {
				return AppendMessage(AppendText(b, ExtraKey, key), ExtraValue, func(b []byte) []byte {
					return appendItems(b, ExtraValueItems, u.GetExtra()[key].GetItems())
				})
			})
		}
		return b
	})
}

func appendItems(b []byte, field protowire.Number, items []string) []byte {
	for _, item := range items {
		b = appendItem(b, field, item)
	}
	return b
}

// appendObjectHead appends an Object up to its bytes.
func appendObjectHead(b []byte, field protowire.Number, o *admissionv1.Object) []byte {
	size := len(o.GetRaw())
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0)
	start := len(b)
	b = AppendText(b, ObjectContentType, o.GetContentType())
	if size > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, ObjectRaw, protowire.BytesType), uint64(size))
	}
	return putLength(b, start, len(b)-start+size)
}
