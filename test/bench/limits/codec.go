package limits

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// codec hands frames over as the buffers that they are, and looks into none that comes.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("limits: %T is no frame", v)
	}
	return frame, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(mem.BufferSlice, any) error { return nil }

// Name implements encoding.CodecV2.
func (codec) Name() string { return "bytes" }
