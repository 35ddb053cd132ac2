package outbound

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestAServerWithoutHTTPIsToldFromABrokenConnection, whichever of reading and writing finds it first.
func TestAServerWithoutHTTPIsToldFromABrokenConnection(t *testing.T) {
	w := serve(t, allowing(t))
	const noHTTP = "the connection brought no answer in HTTP"
	read := func(n int) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, n))
			_, _ = io.WriteString(c, "SSH-2.0-secret\r\n")
		}
	}
	for name, test := range map[string]struct {
		talk func(net.Conn)
		want string // empty: the cause varies
	}{
		"it speaks first":                       {func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-secret\r\n") }, ""},
		"it speaks after part of the request":   {read(10), noHTTP},
		"it speaks after the whole request":     {read(1 << 16), noHTTP},
		"it closes the connection, and no more": {func(net.Conn) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := tls.Listen("tcp", "127.0.0.1:0", w.TLS)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					inner, err := listener.Accept()
					if err != nil {
						return
					}
					if inner.(*tls.Conn).HandshakeContext(t.Context()) == nil {
						test.talk(inner)
					}
					_ = inner.Close()
				}
			}()
			h := w.hook("/")
			at := "https://" + listener.Addr().String()
			h.ClientConfig.URL = &at
			c := newClient(t, Options{})
			for range citest.Rounds(50, 200, 2000) {
				got := ask(t, c, h)
				want(t, got, "lost")
				if got[0].Failure == nil {
					break
				}
				text := got[0].Failure.Error()
				if !strings.HasSuffix(text, test.want) || strings.Contains(text, "use of closed") || strings.Contains(text, "secret") {
					t.Fatalf("failure %s, want %q", text, test.want)
				}
			}
			_ = listener.Close()
			<-ended
		})
	}
}
