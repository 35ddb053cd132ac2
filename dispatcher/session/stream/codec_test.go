package stream

import (
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestAFrameOfAHostIsBounded(t *testing.T) {
	// An unknown field of the size that is left makes a frame of exactly the size wanted.
	frame := func(size int) mem.BufferSlice {
		b := protowire.AppendTag(nil, 2000, protowire.BytesType)
		rest := size - len(b) - protowire.SizeVarint(uint64(size))
		b = protowire.AppendBytes(b, make([]byte, rest))
		return mem.BufferSlice{mem.SliceBuffer(b)}
	}
	at := frame(MaxVerdictBytes)
	if at.Len() != MaxVerdictBytes {
		t.Fatalf("the frame has %d bytes, want %d", at.Len(), MaxVerdictBytes)
	}
	var in received
	if err := Codec().Unmarshal(at, &in); err != nil || in.err != nil {
		t.Errorf("at the limit: %v, %v", err, in.err)
	}
	if err := Codec().Unmarshal(frame(MaxVerdictBytes+1), &in); err != nil || !errors.Is(in.err, errGarbage) {
		t.Errorf("one byte more: %v, %v", err, in.err)
	}
}
