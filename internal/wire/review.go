package wire

import (
	"encoding/hex"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	// scalarBytes is more than the numbers, tags and lengths of a Review, a HookCall or a Chunk take.
	scalarBytes = 48
	// TraceparentBytes is the length of a W3C traceparent.
	TraceparentBytes = 55
	// traceBytes is the length of an encoded traceparent with its tag and length.
	traceBytes = TraceparentBytes + 2
)

// HookCall is a HookCall to be encoded.
type HookCall struct {
	Name          string
	Configuration string
	Stage         admissionv1.Stage
	Mode          hostv1.Mode
	RemainingMS   uint32
	Round         uint32
	Span          trace.SpanContext // of the call; its ID is sent
}

// HeadBound is an upper bound in bytes of the head of a frame, less its HookCalls: prefix and numbers of one Review.
const HeadBound = PrefixBytes + scalarBytes

// HookCallBound returns the number of bytes that an encoded HookCall with such texts takes at most.
func HookCallBound(name, configuration string) int {
	return scalarBytes + len(name) + len(configuration)
}

// AppendHookCall appends a hook's part of a Review.
func AppendHookCall(b []byte, c *HookCall) []byte {
	return AppendMessage(b, ReviewHooks, func(b []byte) []byte {
		b = AppendText(b, HookCallName, c.Name)
		b = AppendNumber(b, HookCallStage, uint64(c.Stage))
		b = AppendNumber(b, HookCallRemaining, uint64(c.RemainingMS))
		b = AppendNumber(b, HookCallRound, uint64(c.Round))
		b = AppendNumber(b, HookCallMode, uint64(c.Mode))
		b = AppendText(b, HookCallConfiguration, c.Configuration)
		if c.Span.IsValid() {
			id := c.Span.SpanID()
			b = protowire.AppendBytes(protowire.AppendTag(b, HookCallSpan, protowire.BytesType), id[:])
		}
		return b
	})
}

// appendTrace appends the trace of a Review as W3C trace context, if it has a valid one.
func appendTrace(b []byte, span trace.SpanContext) []byte {
	if !span.IsValid() {
		return b
	}
	of, id := span.TraceID(), span.SpanID()
	b = protowire.AppendVarint(protowire.AppendTag(b, ReviewTraceparent, protowire.BytesType), TraceparentBytes)
	b = hex.AppendEncode(append(b, "00-"...), of[:])
	b = hex.AppendEncode(append(b, '-'), id[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(span.TraceFlags())})
	return AppendText(b, ReviewTracestate, span.TraceState().String())
}

// ChunkHead returns the beginning of a frame with a Chunk, up to its data, which has size bytes.
func ChunkHead(call uint64, total, hooks, size int) []byte {
	b := make([]byte, PrefixBytes, 2*PrefixBytes+scalarBytes)
	b = AppendNumber(b, ChunkCallID, call)
	b = AppendNumber(b, ChunkTotal, uint64(total))
	b = AppendNumber(b, ChunkHooks, uint64(hooks))
	b = protowire.AppendVarint(protowire.AppendTag(b, ChunkData, protowire.BytesType), uint64(size))
	return Prefix(b, PrefixBytes, ConnectResponseChunk, len(b)-PrefixBytes+size)
}

// ReviewView is a Review that was read. Its bytes are a part of the frame.
type ReviewView struct {
	CallID      uint64
	Hooks       []HookCallView
	Traceparent []byte
	Tracestate  []byte
	// Request is the encoded AdmissionRequest; nil if there is none.
	Request []byte

	one [1]HookCallView // Hooks, as long as there is one
}

// HookCallView is a HookCall that was read. Its bytes are a part of the frame.
type HookCallView struct {
	Name          []byte
	Configuration []byte
	Span          []byte
	Stage         admissionv1.Stage
	Mode          hostv1.Mode
	RemainingMS   uint32
	Round         uint32
}

// ChunkView is a Chunk that was read. Its data is the frame's.
type ChunkView struct {
	CallID uint64
	Total  uint64 // bytes of the whole Review
	Hooks  uint32
	Data   []byte
}

// Read reads an encoded Review, which r keeps. It returns false for a message that dispatchers do not write (unknown fields, fields
// that come twice, malformed ones): the generated code is to read that. It stops after maxHooks hooks and one more.
func (r *ReviewView) Read(encoded []byte, maxHooks int) bool {
	r.Hooks = r.one[:0]
	var seen uint64
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		if size == 0 || f.Number > ReviewRequest || f.Number != ReviewHooks && seen&(1<<f.Number) != 0 {
			return false
		}
		encoded = encoded[size:]
		seen |= 1 << f.Number
		switch {
		case f.Number == ReviewCallID && !f.IsBytes:
			r.CallID = f.Value
		case f.Number == ReviewHooks && f.IsBytes:
			var h HookCallView
			if !h.read(body) {
				return false
			}
			if r.Hooks = append(r.Hooks, h); len(r.Hooks) > maxHooks {
				return true
			}
		case f.Number == ReviewTraceparent && f.IsText(body):
			r.Traceparent = body
		case f.Number == ReviewTracestate && f.IsText(body):
			r.Tracestate = body
		case f.Number == ReviewRequest && f.IsBytes:
			r.Request = body
		default:
			return false
		}
	}
	return true
}

func (h *HookCallView) read(encoded []byte) bool {
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		encoded = encoded[size:]
		switch {
		case size == 0:
			return false
		case f.Number == HookCallName && f.IsText(body):
			h.Name = body
		case f.Number == HookCallStage && !f.IsBytes:
			h.Stage = admissionv1.Stage(f.Value)
		case f.Number == HookCallRemaining && !f.IsBytes:
			h.RemainingMS = uint32(f.Value)
		case f.Number == HookCallRound && !f.IsBytes:
			h.Round = uint32(f.Value)
		case f.Number == HookCallMode && !f.IsBytes:
			h.Mode = hostv1.Mode(f.Value)
		case f.Number == HookCallReservation && f.IsText(body): // not used by handlers yet
		case f.Number == HookCallConfiguration && f.IsText(body):
			h.Configuration = body
		case f.Number == HookCallSpan && f.IsBytes:
			h.Span = body
		default:
			return false
		}
	}
	return true
}

// Read reads an encoded Chunk, which c keeps. It returns false as [ReviewView]'s Read does.
func (c *ChunkView) Read(encoded []byte) bool {
	for len(encoded) > 0 {
		f, body, size := Next(encoded)
		encoded = encoded[size:]
		switch {
		case size == 0:
			return false
		case f.Number == ChunkCallID && !f.IsBytes:
			c.CallID = f.Value
		case f.Number == ChunkTotal && !f.IsBytes:
			c.Total = f.Value
		case f.Number == ChunkHooks && !f.IsBytes:
			c.Hooks = uint32(f.Value)
		case f.Number == ChunkData && f.IsBytes:
			c.Data = body
		default:
			return false
		}
	}
	return true
}

// Milliseconds is a duration as the contract counts it: whole milliseconds, rounded down, never negative.
func Milliseconds(d time.Duration) uint32 {
	return uint32(min(max(0, d.Milliseconds()), math.MaxUint32))
}
