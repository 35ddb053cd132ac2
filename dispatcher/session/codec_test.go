package session

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
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
	if err := Codec().Unmarshal(at, new(hostv1.ConnectRequest)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := Codec().Unmarshal(frame(MaxVerdictBytes+1), new(hostv1.ConnectRequest)); err == nil {
		t.Error("one byte more was taken")
	}
}
