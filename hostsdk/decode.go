package hostsdk

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Numbers of fields of AdmissionRequest and of the messages in it.
const (
	clusterField   = 2
	nameField      = 9
	namespaceField = 10
	operationField = 11
	userField      = 12
	objectField    = 13
	oldObjectField = 14
	optionsField   = 15
	dryRunField    = 16

	usernameField = 1 // UserInfo.username

	contentTypeField = 1 // Object.content_type
	rawField         = 2 // Object.raw
)

// The shapes of messages: what each field is, by its number. A capital letter is a field that may come more than once.
const (
	requestShape = "-ttkktkktttt" + "uooonnn"
	kindShape    = "-ttt" // also that of resources
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

// wellFormed says that the protobuf library would decode a message of a shape, and that it is written as dispatchers do:
// without other fields, and with none twice that comes once. It costs no memory. False leaves the message to the library.
func wellFormed(encoded []byte, shape string) bool {
	var seen uint64
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		if size == 0 || int(f.number) >= len(shape) {
			return false
		}
		encoded = encoded[size:]
		letter := shape[f.number]
		if once := letter >= 'a'; once && seen&(1<<f.number) != 0 {
			return false
		}
		seen |= 1 << f.number
		var ok bool
		switch letter {
		case 'n': // a number
			ok = !f.isBytes
		case 't', 'T': // a text
			ok = f.isText(body)
		case 'b': // bytes
			ok = f.isBytes
		default:
			ok = f.isBytes && wellFormed(body, messageShape(letter))
		}
		if !ok {
			return false
		}
	}
	return true
}

// find is the field of a number in a message that is well-formed, and its bytes; zero values if there is none.
func find(encoded []byte, number protowire.Number) (f field, body []byte) {
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		if size == 0 || f.number == number {
			return f, body
		}
		encoded = encoded[size:]
	}
	return field{}, nil
}

// findBytes is the bytes of a field.
func findBytes(encoded []byte, number protowire.Number) []byte {
	_, body := find(encoded, number)
	return body[:len(body):len(body)]
}

// decodeRequest decodes an AdmissionRequest that is well-formed. The library decodes everything but the objects, which it
// would copy: they are the bytes that came.
func decodeRequest(encoded []byte) *admissionv1.AdmissionRequest {
	var objects [3]*admissionv1.Object
	var others []byte
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		if objectField <= f.number && f.number <= optionsField {
			objects[f.number-objectField] = decodeObject(body)
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
		ContentType: string(findBytes(encoded, contentTypeField)), Raw: findBytes(encoded, rawField),
	}
}
