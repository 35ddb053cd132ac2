package wire

import (
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// WellFormed reports whether an encoded AdmissionRequest can be read in place: the generated code would decode it, and it has no
// unknown field and none twice. It allocates nothing.
func WellFormed(encoded []byte) bool { return wellFormed(encoded, requestShape) }

// The shapes of messages: the kind of each field, by its number. A capital letter is a field that may come more than
// once.
const (
	requestShape = "-ttkktkktttt" + "uooonnn"
	kindShape    = "-ttt" // also the shape of resources
	userShape    = "-ttTE"
	extraShape   = "-ti" // an entry of the map of extra values
	itemsShape   = "-T"
	objectShape  = "-tb"
)

// messageShape is the shape of the messages that a letter stands for.
func messageShape(letter byte) string {
	switch letter {
	case 'k':
		return kindShape
	case 'u':
		return userShape
	case 'E':
		return extraShape
	case 'i':
		return itemsShape
	default: // o
		return objectShape
	}
}

// wellFormed reports whether the protobuf library would decode a message of a shape, which is written as dispatchers do:
// without other fields, and with none twice that comes once. It allocates nothing.
func wellFormed(encoded []byte, shape string) bool {
	var seen uint64
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		if size == 0 || int(f.Number) >= len(shape) {
			return false
		}
		encoded = encoded[size:]
		letter := shape[f.Number]
		if once := letter >= 'a'; once && seen&(1<<f.Number) != 0 {
			return false
		}
		seen |= 1 << f.Number
		var ok bool
		switch letter {
		case 'n': // a number
			ok = !f.IsBytes
		case 't', 'T': // a text
			ok = f.IsText(body)
		case 'b': // bytes
			ok = f.IsBytes
		default:
			ok = f.IsBytes && wellFormed(body, messageShape(letter))
		}
		if !ok {
			return false
		}
	}
	return true
}

// DecodeRequest decodes a well-formed AdmissionRequest, which the result refers to. The library decodes everything but the objects, which it
// would copy: they are the bytes that came.
func DecodeRequest(encoded []byte) *admissionv1.AdmissionRequest {
	var objects [3]*admissionv1.Object
	var others []byte
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		if RequestObject <= f.Number && f.Number <= RequestOptions {
			objects[f.Number-RequestObject] = decodeObject(body)
		} else {
			others = append(others, encoded[:size]...)
		}
		encoded = encoded[size:]
	}
	r := &admissionv1.AdmissionRequest{}
	_ = proto.Unmarshal(others, r) // It is well-formed.
	r.Object, r.OldObject, r.Options = objects[0], objects[1], objects[2]
	return r
}

func decodeObject(encoded []byte) *admissionv1.Object {
	return &admissionv1.Object{
		ContentType: string(FindBytes(encoded, ObjectContentType)), Raw: FindBytes(encoded, ObjectRaw),
	}
}
