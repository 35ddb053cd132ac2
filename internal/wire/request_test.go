package wire_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// checkBody checks that the pieces behind a prefix parse as a frame with an equal request, and that no object was copied.
func checkBody(t testing.TB, request *admissionv1.AdmissionRequest) {
	t.Helper()
	body := wire.EncodeBody(request, trace.SpanContext{})
	joined := bytes.Join(body.Buffers(), nil)
	if len(joined) != body.Len() {
		t.Fatalf("Len is %d, the buffers hold %d", body.Len(), len(joined))
	}
	prefix, err := proto.Marshal(&hostv1.Review{CallId: 7, Hooks: []*hostv1.HookCall{{Name: "h", RemainingMs: 5}}, Traceparent: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var got hostv1.Review
	if err := proto.Unmarshal(append(prefix, joined...), &got); err != nil {
		t.Fatalf("the frame does not parse: %v", err)
	}
	want := &hostv1.Review{CallId: 7, Hooks: []*hostv1.HookCall{{Name: "h", RemainingMs: 5}}, Traceparent: "t", Request: request}
	if !proto.Equal(want, &got) {
		t.Fatalf("the frame differs (-want +got):\n%s", cmp.Diff(want, &got, protocmp.Transform()))
	}
	for _, o := range []*admissionv1.Object{request.GetObject(), request.GetOldObject(), request.GetOptions()} {
		if raw := o.GetRaw(); len(raw) > 0 && !refersTo(body, raw) {
			t.Errorf("an object of %d bytes is not referred to", len(raw))
		}
	}
	if again := bytes.Join(wire.EncodeBody(request, trace.SpanContext{}).Buffers(), nil); !bytes.Equal(again, joined) {
		t.Error("the same request is other bytes the second time")
	}
}

func refersTo(body wire.Body, raw []byte) bool {
	for _, piece := range body.Buffers() {
		if unsafe.SliceData(piece) == unsafe.SliceData(raw) && len(piece) == len(raw) {
			return true
		}
	}
	return false
}

func TestEncodeBody(t *testing.T) {
	object := func(size int) *admissionv1.Object { return &admissionv1.Object{Raw: bytes.Repeat([]byte("x"), size)} }
	unknown := &admissionv1.AdmissionRequest{Uid: "u"}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 5))
	for name, request := range map[string]*admissionv1.AdmissionRequest{
		"empty":                       {},
		"no objects":                  {Uid: "u", Operation: "CONNECT"},
		"an object without bytes":     {Object: &admissionv1.Object{}, OldObject: &admissionv1.Object{ContentType: "application/cbor"}},
		"options alone":               {Options: object(3)},
		"sizes of two length bytes":   {Object: object(127), OldObject: object(128), Options: object(16384)},
		"a large object":              {Object: object(3 << 20), OldObject: object(3 << 20)},
		"empty messages":              {Kind: &admissionv1.GroupVersionKind{}, UserInfo: &admissionv1.UserInfo{}, DryRun: new(bool)},
		"extra without key or values": {UserInfo: &admissionv1.UserInfo{Extra: map[string]*admissionv1.ExtraValue{"": {}}}},
		"a long user":                 {UserInfo: &admissionv1.UserInfo{Username: string(make([]byte, 5000)), Groups: make([]string, 300)}},
		"fields of a later contract":  unknown,
	} {
		t.Run(name, func(t *testing.T) { checkBody(t, request) })
	}
}

// TestEncodeBodyOfAnything fills every field of the contract at random, also those that are added to it one day.
func TestEncodeBodyOfAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		request := &admissionv1.AdmissionRequest{}
		fill(random, request.ProtoReflect())
		checkBody(t, request)
	}
}

func TestEncodeBodyMendsInvalidUTF8(t *testing.T) {
	body := wire.EncodeBody(&admissionv1.AdmissionRequest{Name: "a\xffb"}, trace.SpanContext{})
	var got hostv1.Review
	if err := proto.Unmarshal(bytes.Join(body.Buffers(), nil), &got); err != nil || got.GetRequest().GetName() != "a\ufffdb" {
		t.Errorf("name %q, error %v", got.GetRequest().GetName(), err)
	}
}

func TestEncodeBodyOfNothing(t *testing.T) {
	var zero wire.Body
	if len(zero.Buffers()) != 0 || zero.Len() != 0 {
		t.Error("the zero Body holds something")
	}
	var got hostv1.Review
	if err := proto.Unmarshal(bytes.Join(wire.EncodeBody(nil, trace.SpanContext{}).Buffers(), nil), &got); err != nil || got.GetRequest() == nil {
		t.Errorf("nil is read back as %v, error %v", got.GetRequest(), err)
	}
}

// fill sets each field of a message with a chance of two in three.
func fill(random *rand.Rand, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if random.IntN(3) == 0 {
			continue
		}
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			for range random.IntN(4) {
				key := scalar(random, field.MapKey()).MapKey()
				value := entries.NewValue()
				fill(random, value.Message())
				entries.Set(key, value)
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range random.IntN(4) {
				list.Append(scalar(random, field))
			}
		case field.Message() != nil:
			fill(random, m.Mutable(field).Message())
		default:
			m.Set(field, scalar(random, field))
		}
	}
}

func scalar(random *rand.Rand, field protoreflect.FieldDescriptor) protoreflect.Value {
	text := []string{"", "a", "é", "some longer text", string(bytes.Repeat([]byte("x"), random.IntN(300)))}[random.IntN(5)]
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(random.IntN(2) == 0)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(random.Uint32())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(random.IntN(6)))
	default:
		panic("fill does not know " + field.Kind().String())
	}
}
