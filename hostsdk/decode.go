package hostsdk

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// decodeRequest decodes an AdmissionRequest as the protobuf library does, but for what is copied: objects are the bytes
// that came, and texts share one copy. Whatever dispatchers do not write (fields that are unknown, or messages that come
// in two parts) is left to the library.
func decodeRequest(encoded []byte) (*admissionv1.AdmissionRequest, error) {
	d := requestDecoder{encoded: encoded}
	if r, ok := d.request(); ok {
		return r, nil
	}
	r := &admissionv1.AdmissionRequest{}
	if err := proto.Unmarshal(encoded, r); err != nil {
		return nil, err
	}
	return r, nil
}

// firstObject is the number of the first field that holds an object. Those before it are texts, and short.
const firstObject = 13

// requestDecoder decodes one request. Positions are offsets in encoded.
type requestDecoder struct {
	encoded []byte
	text    string // a copy of the beginning of encoded, with the fields before the objects
}

// parts are the messages of a request in one allocation.
type parts struct {
	request                admissionv1.AdmissionRequest
	kind, requestKind      admissionv1.GroupVersionKind
	resource, requestPlace admissionv1.GroupVersionResource
	user                   admissionv1.UserInfo
	objects                [3]admissionv1.Object
	dryRun                 bool
}

// request decodes the message; false leaves it to the library, as everywhere here.
func (d *requestDecoder) request() (*admissionv1.AdmissionRequest, bool) {
	d.text = string(d.encoded[:d.textEnd()])
	p := &parts{}
	s := span{0, len(d.encoded)}
	for s.from < s.to {
		f, ok := d.next(&s)
		if !ok || !d.requestField(p, &f) {
			return nil, false
		}
	}
	return &p.request, true
}

// textEnd is where the first object begins. Readers accept any order of fields: behind it each text is a copy of its own.
func (d *requestDecoder) textEnd() int {
	for s := (span{0, len(d.encoded)}); s.from < s.to; {
		at := s.from
		if f, ok := d.next(&s); !ok || f.number >= firstObject {
			return at
		}
	}
	return len(d.encoded)
}

func (d *requestDecoder) requestField(p *parts, f *spanField) bool {
	r := &p.request
	switch f.number {
	case 1:
		return d.string(f, &r.Uid)
	case 2:
		return d.string(f, &r.Cluster)
	case 3:
		return first(f, &r.Kind, &p.kind) && d.strings(f, &p.kind.Group, &p.kind.Version, &p.kind.Kind)
	case 4:
		return first(f, &r.Resource, &p.resource) && d.strings(f, &p.resource.Group, &p.resource.Version, &p.resource.Resource)
	case 5:
		return d.string(f, &r.SubResource)
	case 6:
		return first(f, &r.RequestKind, &p.requestKind) &&
			d.strings(f, &p.requestKind.Group, &p.requestKind.Version, &p.requestKind.Kind)
	case 7:
		return first(f, &r.RequestResource, &p.requestPlace) &&
			d.strings(f, &p.requestPlace.Group, &p.requestPlace.Version, &p.requestPlace.Resource)
	case 8:
		return d.string(f, &r.RequestSubResource)
	case 9:
		return d.string(f, &r.Name)
	case 10:
		return d.string(f, &r.Namespace)
	case 11:
		return d.string(f, &r.Operation)
	case 12:
		return first(f, &r.UserInfo, &p.user) && d.user(f, &p.user)
	case firstObject:
		return first(f, &r.Object, &p.objects[0]) && d.object(f, &p.objects[0])
	case 14:
		return first(f, &r.OldObject, &p.objects[1]) && d.object(f, &p.objects[1])
	case 15:
		return first(f, &r.Options, &p.objects[2]) && d.object(f, &p.objects[2])
	case 16:
		p.dryRun, r.DryRun = protowire.DecodeBool(f.value), &p.dryRun
		return !f.isBytes
	case 17:
		r.ObjectRevision = uint32(f.value)
		return !f.isBytes
	case 18:
		r.Projection = admissionv1.Projection(f.value)
		return !f.isBytes
	default:
		return false
	}
}

// first takes a message that has not come before: the parts of one that comes twice belong together.
func first[M any](f *spanField, where **M, m *M) bool {
	if *where != nil || !f.isBytes {
		return false
	}
	*where = m
	return true
}

// strings decodes a message of strings, numbered from 1.
func (d *requestDecoder) strings(f *spanField, to ...*string) bool {
	for s := f.span; s.from < s.to; {
		inner, ok := d.next(&s)
		if !ok || int(inner.number) > len(to) || !d.string(&inner, to[inner.number-1]) {
			return false
		}
	}
	return true
}

func (d *requestDecoder) user(f *spanField, u *admissionv1.UserInfo) bool {
	for s := f.span; s.from < s.to; {
		inner, ok := d.next(&s)
		if !ok {
			return false
		}
		switch inner.number {
		case 1:
			ok = d.string(&inner, &u.Username)
		case 2:
			ok = d.string(&inner, &u.Uid)
		case 3:
			ok = d.append(&inner, &u.Groups)
		case 4:
			ok = d.extra(&inner, u)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// extra decodes an entry of the map of extra values.
func (d *requestDecoder) extra(f *spanField, u *admissionv1.UserInfo) bool {
	if !f.isBytes {
		return false
	}
	key, value := "", (*admissionv1.ExtraValue)(nil)
	for s := f.span; s.from < s.to; {
		inner, ok := d.next(&s)
		switch {
		case !ok:
			return false
		case inner.number == 1:
			ok = d.string(&inner, &key)
		case inner.number == 2:
			ok = first(&inner, &value, &admissionv1.ExtraValue{}) && d.items(&inner, value)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	if value == nil {
		value = &admissionv1.ExtraValue{}
	}
	if u.Extra == nil {
		u.Extra = map[string]*admissionv1.ExtraValue{}
	}
	u.Extra[key] = value
	return true
}

func (d *requestDecoder) items(f *spanField, to *admissionv1.ExtraValue) bool {
	for s := f.span; s.from < s.to; {
		inner, ok := d.next(&s)
		if !ok || inner.number != 1 || !d.append(&inner, &to.Items) {
			return false
		}
	}
	return true
}

func (d *requestDecoder) object(f *spanField, o *admissionv1.Object) bool {
	for s := f.span; s.from < s.to; {
		inner, ok := d.next(&s)
		switch {
		case !ok:
			return false
		case inner.number == 1:
			ok = d.string(&inner, &o.ContentType)
		case inner.number == 2:
			o.Raw, ok = d.encoded[inner.from:inner.to:inner.to], inner.isBytes
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// string decodes a text.
func (d *requestDecoder) string(f *spanField, to *string) bool {
	text := d.encoded[f.from:f.to]
	if !f.isBytes || !utf8.Valid(text) {
		return false
	}
	if f.to <= len(d.text) {
		*to = d.text[f.from:f.to]
	} else {
		*to = string(text)
	}
	return true
}

// append decodes a text of several.
func (d *requestDecoder) append(f *spanField, to *[]string) bool {
	var text string
	ok := d.string(f, &text)
	*to = append(*to, text)
	return ok
}

// span is a part of the encoded request.
type span struct{ from, to int }

// spanField is one field: a number, or bytes.
type spanField struct {
	span
	number  protowire.Number
	isBytes bool
	value   uint64
}

// next takes the first field of a span; false when it is of a kind that the message has not.
func (d *requestDecoder) next(s *span) (spanField, bool) {
	rest := d.encoded[s.from:s.to]
	before := len(rest)
	f, ok := nextField(&rest)
	s.from += before - len(rest)
	return spanField{span: span{s.from - len(f.bytes), s.from}, number: f.number, isBytes: f.isBytes, value: f.value}, ok
}
