package answers

import (
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Bounds of the answers that an API server sends ahead over HTTP/2, in bytes. They wait in memory that nothing is booked for; the default is 4 MiB for each
// answer. Over HTTP/1 the kernel holds them. Unpacking an answer takes 60 kB.
const (
	// MaxAheadBytes bounds the part of one answer that has come and is not read.
	MaxAheadBytes = 256 << 10
	// MaxAheadOfConnection bounds the parts of all answers of a connection together.
	MaxAheadOfConnection = 8 << 20
)

// Buffers are the limits of a client of API servers.
func Buffers() *http.HTTP2Config {
	return &http.HTTP2Config{MaxReceiveBufferPerStream: MaxAheadBytes, MaxReceiveBufferPerConnection: MaxAheadOfConnection}
}

// limiting is held while LimitBuffers looks at a transport: client-go has one for all kubeconfigs that are alike.
var limiting sync.Mutex //nolint:gochecknoglobals // as the transports are

// LimitBuffers gives a transport of client-go, before it is used, the limits of Buffers. Another kind of transport stays as it is.
func LimitBuffers(over http.RoundTripper) {
	for {
		switch t := over.(type) {
		case *http.Transport:
			limiting.Lock()
			if t.HTTP2 == nil {
				t.HTTP2 = Buffers()
			}
			limiting.Unlock()
			return
		case utilnet.RoundTripperWrapper:
			over = t.WrappedRoundTripper()
		default:
			return
		}
	}
}
