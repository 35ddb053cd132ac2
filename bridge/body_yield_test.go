package bridge

import (
	"bytes"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestOthersComputeWhileALargeBodyIsRead has one processor, a body that has arrived, and a goroutine that is ready. The runtime may choose the reader again
// after a pause, so that the body has several.
func TestOthersComputeWhileALargeBodyIsRead(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const size = 4 * yieldBytes
	content, buffer := bytes.Repeat([]byte("a"), size), make([]byte, size)
	var others atomic.Bool
	go others.Store(true)

	_, err := io.ReadFull(&yieldingBody{Reader: bytes.NewReader(content)}, buffer)

	if err != nil || !others.Load() || !bytes.Equal(buffer, content) {
		t.Errorf("%v; others computed meanwhile: %t", err, others.Load())
	}
}
