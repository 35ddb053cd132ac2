// Package wire encodes and decodes by hand the messages that every review needs: reviews, chunks and verdicts of
// portcullis.host.v1, and the AdmissionRequest in a review. The generated code takes eight times as long and allocates each
// message; here a message is read in place and written around a body that exists already. All other messages of the contract
// are the generated code's.
//
// Tests compare both directions with the generated code, and all field numbers with the descriptors. Everything is pure and safe
// for concurrent use, unless a type says otherwise.
package wire

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of an encoded message without its bytes: small, so that it stays in registers.
type Field struct {
	// Number is the field's number.
	Number protowire.Number
	// IsBytes is true for strings, bytes and messages, and false for numbers.
	IsBytes bool
	// Value is the value of a number.
	Value uint64
}

// IsText reports whether the field is a string: protobuf rejects a string that is not UTF-8.
func (f Field) IsText(body []byte) bool { return f.IsBytes && (isASCII(body) || utf8.Valid(body)) }

// isASCII tells most texts in a quarter of the time of utf8.Valid: they are short.
func isASCII(b []byte) bool {
	var high uint64
	for ; len(b) >= 8; b = b[8:] {
		high |= binary.LittleEndian.Uint64(b)
	}
	for _, c := range b {
		high |= uint64(c)
	}
	return high&0x8080808080808080 == 0
}

// Next returns the first field of a message, its bytes if it has any, and its size. The size is 0 for a malformed field and for
// a type that the contract does not use. The bytes are a part of encoded.
//
// Most fields have a number below 2,048, and are a number below 16,384 or less than that many bytes.
func Next(encoded []byte) (f Field, body []byte, size int) {
	tag, n := shortVarint(encoded)
	value, m := shortVarint(encoded[n:])
	start, number := n+m, protowire.Number(tag>>3)
	switch {
	case n == 0 || m == 0 || number == 0:
		return longField(encoded)
	case protowire.Type(tag&7) == protowire.VarintType:
		return Field{Number: number, Value: value}, nil, start
	case protowire.Type(tag&7) == protowire.BytesType && value <= uint64(len(encoded)-start):
		end := start + int(value)
		return Field{Number: number, IsBytes: true}, encoded[start:end], end
	default:
		return Field{}, nil, 0
	}
}

// shortVarint reads a number of one or two bytes; n is 0 when it is longer, or cut off.
func shortVarint(b []byte) (v uint64, n int) {
	switch {
	case len(b) > 0 && b[0] < 1<<7:
		return uint64(b[0]), 1
	case len(b) > 1 && b[1] < 1<<7:
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	default:
		return 0, 0
	}
}

// longField is Next for any field.
func longField(encoded []byte) (f Field, body []byte, size int) {
	number, kind, n := protowire.ConsumeTag(encoded)
	if n < 0 {
		return Field{}, nil, 0
	}
	f.Number = number
	m := -1
	switch kind { //nolint:exhaustive // the contract uses no others
	case protowire.VarintType:
		f.Value, m = protowire.ConsumeVarint(encoded[n:])
	case protowire.BytesType:
		f.IsBytes = true
		body, m = protowire.ConsumeBytes(encoded[n:])
	}
	if m < 0 {
		return Field{}, nil, 0
	}
	return f, body, n + m
}

// Only returns the field of a message that consists of one field, of bytes; ok is false for any other message.
func Only(encoded []byte) (number protowire.Number, body []byte, ok bool) {
	f, body, size := Next(encoded)
	return f.Number, body, f.IsBytes && size == len(encoded)
}

// Fields calls take with each field of a message. It skips fields of types that the contract does not use. It returns the first
// error of take, or protowire's error if the message is malformed.
func Fields(encoded []byte, take func(f Field, body []byte) error) error {
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		if size == 0 {
			_, _, n := protowire.ConsumeField(encoded)
			if n < 0 {
				return protowire.ParseError(n)
			}
			encoded = encoded[n:]
			continue
		}
		encoded = encoded[size:]
		if err := take(f, body); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the first field of a number in a well-formed message, and its bytes; zero values if there is none.
func Find(encoded []byte, number protowire.Number) (f Field, body []byte) {
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		if size == 0 || f.Number == number {
			return f, body
		}
		encoded = encoded[size:]
	}
	return Field{}, nil
}

// FindBytes returns the bytes of such a field, with no capacity beyond them.
func FindBytes(encoded []byte, number protowire.Number) []byte {
	_, body := Find(encoded, number)
	return body[:len(body):len(body)]
}

// Oneof is the member of a oneof that was set last. The zero value is an unset oneof.
type Oneof struct {
	// Number is the member's field number.
	Number protowire.Number
	// Body is its encoding: a part of the message that it was read from, or a copy.
	Body []byte

	copied bool
}

// Set sets a member. The parts of a message that comes more than once in a row are merged, as protobuf demands: they are joined in
// memory of their own, which grows as a slice does.
func (o *Oneof) Set(number protowire.Number, body []byte) {
	if o.Number != number {
		*o = Oneof{Number: number, Body: body}
		return
	}
	if !o.copied {
		o.Body, o.copied = o.Body[:len(o.Body):len(o.Body)], true
	}
	o.Body = append(o.Body, body...)
}

// PrefixBytes is more than the tag and the length of a field take.
const PrefixBytes = 16

// AppendNumber appends a number, unless it is zero.
func AppendNumber(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

// AppendText appends a string, unless it is empty. Bytes that are not UTF-8, which protobuf forbids, become U+FFFD.
func AppendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return appendItem(b, number, text)
}

// appendItem appends a string of a repeated field, which may be empty.
func appendItem(b []byte, number protowire.Number, text string) []byte {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

// AppendMessage appends a message whose fields are appended by fields. The length is written last and mostly takes one byte: it is
// cheaper to move the fields of a longer message than to measure all of them first.
func AppendMessage(b []byte, number protowire.Number, fields func(b []byte) []byte) []byte {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	start := len(b)
	b = fields(b)
	return putLength(b, start, len(b)-start)
}

// putLength puts a length in the place of the byte before start.
func putLength(b []byte, start, length int) []byte {
	if length < 1<<7 {
		b[start-1] = byte(length)
		return b
	}
	var varint [PrefixBytes]byte
	return slices.Replace(b, start-1, start, protowire.AppendVarint(varint[:0], uint64(length))...)
}

// Prefix writes the tag and the length of a field right before its content, which begins at start in b, and returns b from the tag
// on. start is at least [PrefixBytes].
func Prefix(b []byte, start int, number protowire.Number, length int) []byte {
	var prefix [PrefixBytes]byte
	p := protowire.AppendVarint(protowire.AppendTag(prefix[:0], number, protowire.BytesType), uint64(length))
	copy(b[start-len(p):], p)
	return b[start-len(p):]
}
