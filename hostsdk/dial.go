package hostsdk

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// window is the HTTP/2 flow-control window of a session: a review of usual size never waits for the window to be
// opened, and a slow host holds back no more than this of a dispatcher's memory. Set by hand, since gRPC's own estimate
// begins at 64 KiB and grows only under load, when reviews are already late.
const window = 4 << 20

// dial returns a connection to one address, which connects when a stream is opened.
func (h *Host) dial(at endpoint) (*grpc.ClientConn, error) {
	creds, err := h.options.TLS.credentials(at.serverName)
	if err != nil {
		return nil, err
	}
	// passthrough: names were resolved before, and each address is a dispatcher of its own.
	return grpc.NewClient("passthrough:///"+at.address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(h.options.Dial),
		// The dispatcher retries: it alone knows which calls may be repeated.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// A connection makes one attempt. The loop's own back-off comes between two, gRPC's would come on top of it.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		// An idle session is still a session.
		grpc.WithIdleTimeout(0),
		// The limit that Hello announces. Verdicts are made to fit the limit that the dispatcher announces in turn.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(max(h.options.MaxFrameBytes, maxWireBytes))),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		// Buffers are given back while nothing is written: a host has few sessions, a dispatcher thousands.
		grpc.WithSharedWriteBuffer(true),
		// No keepalive: the dispatcher's pings and the silence that Welcome names are the one clock of a session.
	)
}
