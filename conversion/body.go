package conversion

import (
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// bodyField is the field of portcullis.host.v1.Review that a Body is.
const bodyField protowire.Number = 15

// Body is an AdmissionRequest encoded as the last field of portcullis.host.v1.Review: tag, length, message. It is the same
// for every host that sees the request, so it is made once and shared. Immutable; the zero value is no field at all.
type Body struct {
	buffers [][]byte
	length  int
}

// Buffers returns the body in pieces; concatenated they are the field. The pieces that are objects are those of the
// request, not copies. Neither the list nor the pieces may be changed.
func (b Body) Buffers() [][]byte { return b.buffers }

// Len is the length of the body in bytes.
func (b Body) Len() int { return b.length }

// EncodeBody encodes a request once for all hosts. req must not change as long as the body is in use. A string that is
// not UTF-8, which protobuf forbids, is mended with U+FFFD rather than sent.
func EncodeBody(req *admissionv1.AdmissionRequest) Body {
	const prefix = 16 // More than a tag and a length take.
	objects := [...]struct {
		field  protowire.Number
		object *admissionv1.Object
	}{{13, req.GetObject()}, {14, req.GetOldObject()}, {15, req.GetOptions()}}

	// Everything but the objects' bytes goes into one buffer. cuts are the places in it where these belong.
	b := appendRequest(make([]byte, prefix, 1024), req)
	var cuts [len(objects)]int
	size := -prefix
	for i, o := range objects {
		if o.object != nil {
			b = appendObjectHead(b, o.field, o.object)
			size += len(o.object.GetRaw())
		}
		cuts[i] = len(b)
	}
	size += len(b)

	var head [prefix]byte
	h := protowire.AppendVarint(protowire.AppendTag(head[:0], bodyField, protowire.BytesType), uint64(size))
	start := prefix - len(h)
	copy(b[start:], h)

	body := Body{buffers: make([][]byte, 0, 2*len(objects)), length: len(h) + size}
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
	b = appendText(b, 1, r.GetUid())
	b = appendText(b, 2, r.GetCluster())
	if k := r.GetKind(); k != nil {
		b = appendNames(b, 3, k.GetGroup(), k.GetVersion(), k.GetKind())
	}
	if rr := r.GetResource(); rr != nil {
		b = appendNames(b, 4, rr.GetGroup(), rr.GetVersion(), rr.GetResource())
	}
	b = appendText(b, 5, r.GetSubResource())
	if k := r.GetRequestKind(); k != nil {
		b = appendNames(b, 6, k.GetGroup(), k.GetVersion(), k.GetKind())
	}
	if rr := r.GetRequestResource(); rr != nil {
		b = appendNames(b, 7, rr.GetGroup(), rr.GetVersion(), rr.GetResource())
	}
	b = appendText(b, 8, r.GetRequestSubResource())
	b = appendText(b, 9, r.GetName())
	b = appendText(b, 10, r.GetNamespace())
	b = appendText(b, 11, r.GetOperation())
	if u := r.GetUserInfo(); u != nil {
		b = appendUser(b, 12, u)
	}
	if r != nil && r.DryRun != nil {
		b = protowire.AppendTag(b, 16, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(r.GetDryRun()))
	}
	b = appendInteger(b, 17, uint64(r.GetObjectRevision()))
	b = appendInteger(b, 18, uint64(r.GetProjection()))
	return append(b, r.ProtoReflect().GetUnknown()...)
}

// appendNames appends a GroupVersionKind or a GroupVersionResource.
func appendNames(b []byte, field protowire.Number, group, version, name string) []byte {
	return appendMessage(b, field, func(b []byte) []byte {
		return appendText(appendText(appendText(b, 1, group), 2, version), 3, name)
	})
}

func appendUser(b []byte, field protowire.Number, u *admissionv1.UserInfo) []byte {
	return appendMessage(b, field, func(b []byte) []byte {
		b = appendText(b, 1, u.GetUsername())
		b = appendText(b, 2, u.GetUid())
		b = appendTexts(b, 3, u.GetGroups())
		if len(u.GetExtra()) == 0 {
			return b
		}
		for _, key := range sortedKeys(u.GetExtra()) { // Sorted, so that equal requests are equal bytes.
			b = appendMessage(b, 4, func(b []byte) []byte {
				return appendMessage(appendText(b, 1, key), 2, func(b []byte) []byte {
					return appendTexts(b, 1, u.GetExtra()[key].GetItems())
				})
			})
		}
		return b
	})
}

// appendObjectHead appends an Object up to its bytes.
func appendObjectHead(b []byte, field protowire.Number, o *admissionv1.Object) []byte {
	size := len(o.GetRaw())
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = appendText(b, 1, o.GetContentType())
	if size > 0 {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
	}
	return insertVarint(b, start, uint64(len(b)-start+size))
}

// appendMessage appends a message whose fields are appended by fields.
func appendMessage(b []byte, field protowire.Number, fields func(b []byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = fields(b)
	return insertVarint(b, start, uint64(len(b)-start))
}

// insertVarint moves the few bytes behind the place: cheaper than to measure a small message before it is written.
func insertVarint(b []byte, at int, v uint64) []byte {
	var varint [10]byte
	return slices.Insert(b, at, protowire.AppendVarint(varint[:0], v)...)
}

// appendText appends a string field unless it is empty.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return appendTexts(b, field, []string{text})
}

func appendTexts(b []byte, field protowire.Number, texts []string) []byte {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, string(utf8.RuneError))
		}
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendString(b, text)
	}
	return b
}

func appendInteger(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
