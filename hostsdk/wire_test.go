package hostsdk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// TestFramesMeanWhatProtobufSays decodes random frames by hand and by the library, also with their fields in another
// order, with some twice, with unknown ones, and broken.
func TestFramesMeanWhatProtobufSays(t *testing.T) {
	byHand := 0
	for seed := range uint64(4000) {
		random := rand.New(rand.NewPCG(seed, 4))
		m := &hostv1.ConnectResponse{}
		(&filler{random}).fill(m.ProtoReflect(), 0)
		encoded := scramble(random, marshal(t, m), m.ProtoReflect().Descriptor())
		if number, _, ok := wire.Only(encoded); ok && number == wire.ConnectResponseReview {
			byHand++
		}
		if err := agree(encoded); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if byHand < 100 {
		t.Errorf("only %d frames were reviews", byHand)
	}
}

// FuzzFrames looks for frames on which both do not agree.
func FuzzFrames(f *testing.F) {
	for seed := range uint64(50) {
		m := &hostv1.ConnectResponse{}
		(&filler{rand.New(rand.NewPCG(seed, 5))}).fill(m.ProtoReflect(), 0)
		encoded, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		if err := agree(encoded); err != nil {
			t.Error(err)
		}
	})
}

// agree returns the difference between the frame and the library's decoding of it.
func agree(encoded []byte) error {
	want := &hostv1.ConnectResponse{}
	wrong := proto.Unmarshal(encoded, want)
	before := bytes.Clone(encoded)
	f, err := decodeFrame(encoded)
	if err == nil {
		for i := range f.reviews { // A request is looked at when a handler wants it.
			if bad := f.reviews[i].request.check(); bad != nil {
				err = bad
			}
		}
	}
	if len(encoded) > maxWireBytes && want.GetReviews() != nil || tooMany(want) {
		return nil
	}
	if (err != nil) != (wrong != nil) {
		return fmt.Errorf("error %w, the library says %w", err, wrong)
	}
	if wrong != nil {
		return nil //nolint:nilerr // both say that it is wrong
	}
	for i := range f.reviews {
		if err := sameParts(&f.reviews[i].request); err != nil {
			return err
		}
	}
	if !bytes.Equal(before, encoded) {
		return fmt.Errorf("the frame was changed")
	}
	if diff := cmp.Diff(known(want), messageOf(f), protocmp.Transform()); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// sameParts says where a part of a request differs before and after the whole is decoded.
func sameParts(r *request) error {
	q := &Request{request: r}
	parts := func() string {
		return fmt.Sprintf("%q %q %q %q %q %#v %#v %v",
			q.Cluster(), q.Operation(), q.Namespace(), q.Name(), q.Username(), q.RawObject(), q.RawOldObject(), q.DryRun())
	}
	before := parts()
	q.Admission()
	if after := parts(); before != after {
		return fmt.Errorf("the parts are\n%s\nof the whole they are\n%s", before, after)
	}
	return nil
}

func tooMany(m *hostv1.ConnectResponse) bool { return len(m.GetReview().GetHooks()) > maxReviewHooks }

// known is a message without the fields that this SDK ignores. One review is a batch of one.
func known(m *hostv1.ConnectResponse) *hostv1.ConnectResponse {
	forget := func(r *hostv1.Review) {
		for _, h := range r.GetHooks() {
			h.Reservation = ""
			h.ProtoReflect().SetUnknown(nil)
		}
		r.ProtoReflect().SetUnknown(nil)
	}
	switch f := m.GetFrame().(type) {
	case *hostv1.ConnectResponse_Review:
		forget(f.Review)
		m.Frame = &hostv1.ConnectResponse_Reviews{Reviews: &hostv1.Reviews{Reviews: []*hostv1.Review{f.Review}}}
	case *hostv1.ConnectResponse_Reviews:
		for _, r := range f.Reviews.GetReviews() {
			forget(r)
		}
		f.Reviews.ProtoReflect().SetUnknown(nil)
	case *hostv1.ConnectResponse_Chunk:
		f.Chunk.ProtoReflect().SetUnknown(nil)
	default:
		return m
	}
	m.ProtoReflect().SetUnknown(nil)
	return m
}

// messageOf is a frame as a message.
func messageOf(f *frame) *hostv1.ConnectResponse {
	if f.message != nil {
		return f.message
	}
	if c := f.chunk; c != nil {
		return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: &hostv1.Chunk{
			CallId: c.CallID, TotalBytes: c.Total, Hooks: c.Hooks, Data: c.Data,
		}}}
	}
	var out []*hostv1.Review
	for i := range f.reviews {
		r := &f.reviews[i]
		m := &hostv1.Review{CallId: r.CallID, Traceparent: string(r.Traceparent), Tracestate: string(r.Tracestate)}
		for _, h := range r.Hooks {
			m.Hooks = append(m.Hooks, &hostv1.HookCall{
				Name: string(h.Name), Configuration: string(h.Configuration), Stage: h.Stage, Mode: h.Mode,
				RemainingMs: h.RemainingMS, Round: h.Round, SpanId: h.Span,
			})
		}
		if r.request.present {
			m.Request = r.request.message()
		}
		out = append(out, m)
	}
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: &hostv1.Reviews{Reviews: out}}}
}

// filler fills messages with random values.
type filler struct{ *rand.Rand }

func (r *filler) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	if oneofs := m.Descriptor().Oneofs(); oneofs.Len() > 0 && !oneofs.Get(0).IsSynthetic() {
		f := oneofs.Get(0).Fields().Get(r.IntN(oneofs.Get(0).Fields().Len()))
		if r.IntN(3) > 0 { // Mostly those that are decoded by hand.
			f = fields.ByNumber([]protowire.Number{wire.ConnectResponseReview, wire.ConnectResponseReviews, wire.ConnectResponseChunk}[r.IntN(3)])
		}
		r.set(m, f, depth)
		return
	}
	for i := range fields.Len() {
		if r.IntN(3) > 0 {
			r.set(m, fields.Get(i), depth)
		}
	}
}

func (r *filler) set(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	switch {
	case f.IsMap():
		for range r.IntN(3) {
			key := protoreflect.ValueOfString(r.text()).MapKey()
			v := m.Mutable(f).Map().NewValue()
			if f.MapValue().Message() != nil {
				r.fill(v.Message(), depth+1)
			} else {
				v = r.scalar(f.MapValue())
			}
			m.Mutable(f).Map().Set(key, v)
		}
	case f.IsList():
		for range r.IntN(4) {
			if f.Message() != nil {
				r.fill(m.Mutable(f).List().AppendMutable().Message(), depth+1)
			} else {
				m.Mutable(f).List().Append(r.scalar(f))
			}
		}
	case f.Message() != nil:
		r.fill(m.Mutable(f).Message(), depth+1)
	default:
		m.Set(f, r.scalar(f))
	}
}

func (r *filler) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(r.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(r.text()))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(7) - 1))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(r.Uint32())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(r.Int32())
	default:
		return protoreflect.ValueOfUint64(r.Uint64())
	}
}

func (r *filler) text() string { return strings.Repeat("é", r.IntN(8)) + "x" }

// scramble changes the encoding of a message: the order of its fields, some twice, some unknown, or a byte.
func scramble(random *rand.Rand, encoded []byte, of protoreflect.MessageDescriptor) []byte {
	var fields [][]byte
	for rest := encoded; len(rest) > 0; {
		number, kind, n := protowire.ConsumeField(rest)
		if n < 0 {
			return encoded
		}
		one := rest[:n]
		if f := of.Fields().ByNumber(number); kind == protowire.BytesType && f != nil && f.Message() != nil {
			_, _, tag := protowire.ConsumeTag(one)
			body, _ := protowire.ConsumeBytes(one[tag:])
			one = protowire.AppendBytes(protowire.AppendTag(nil, number, kind), scramble(random, body, f.Message()))
		}
		fields = append(fields, one)
		if random.IntN(40) == 0 {
			fields = append(fields, one)
		}
		rest = rest[n:]
	}
	if random.IntN(40) == 0 {
		fields = append(fields, protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1))
	}
	if random.IntN(4) == 0 {
		random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	out := bytes.Join(fields, nil)
	if len(out) > 0 && random.IntN(80) == 0 {
		out[random.IntN(len(out))] ^= byte(1 << random.IntN(8))
	}
	return out
}
