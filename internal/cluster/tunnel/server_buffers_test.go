package tunnel

import (
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// TestAnAPIServerBehindABridgeSendsLittleAhead reads the windows that are opened on a tunnel.
func TestAnAPIServerBehindABridgeSendsLittleAhead(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	failed := make(chan error, 1)
	go func() {
		_, err := NewServer(nil).transport.NewClientConn(ours)
		failed <- err
	}()
	if _, err := io.ReadFull(theirs, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(io.Discard, theirs)
	frame, err := framer.ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if err != nil || !ok {
		t.Fatalf("frame %v, %v", frame, err)
	}
	if size, _ := settings.Value(http2.SettingInitialWindowSize); size != answers.MaxAheadBytes {
		t.Errorf("an answer may be %d bytes ahead", size)
	}
	frame, err = framer.ReadFrame()
	if update, ok := frame.(*http2.WindowUpdateFrame); err != nil || !ok || update.Increment != answers.MaxAheadOfConnection {
		t.Errorf("all answers may be ahead by %v, %v", frame, err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
