package upstream

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portcullis-mesh/portcullis/bridge"
)

// TestADispatcherThatAsksForCalmIsNoDenial has a server end each call by RST_STREAM with ENHANCE_YOUR_CALM, which gRPC gives the code of a
// message that is too large.
func TestADispatcherThatAsksForCalmIsNoDenial(t *testing.T) {
	r, err := New(Options{
		Targets: []string{resetting(t, http2.ErrCodeEnhanceYourCalm)}, Credentials: func(string) credentials.TransportCredentials { return insecure.NewCredentials() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	answer, err := r.Review(t.Context(), request(patience))
	if !errors.Is(err, bridge.ErrNoDispatcher) || !errors.Is(err, bridge.ErrOverloaded) || answer.Response != nil {
		t.Errorf("answer %v, error %v", answer.Response, err)
	}
	if err != nil && !strings.Contains(err.Error(), "ENHANCE_YOUR_CALM") {
		t.Errorf("the log would not have the cause: %v", err)
	}
}

// resetting is the address of an HTTP/2 server that resets each stream with a code, once it has the request.
func resetting(t *testing.T, code http2.ErrCode) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { reset(conn, code) })
		}
	})
	return listener.Addr().String()
}

func reset(conn net.Conn, code http2.ErrCode) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	err := framer.WriteSettings()
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				err = framer.WriteRSTStream(f.StreamID, code)
			}
		}
	}
}
