package answers

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"
)

// TestAnAPIServerSendsLittleAhead reads the windows that a client of an API server opens: for each answer, and for all of a connection.
func TestAnAPIServerSendsLittleAhead(t *testing.T) {
	type windows struct{ answer, connection uint32 }
	opened := make(chan windows, 1)
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{http2.NextProtoTLS}}
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
			defer conn.Close()
			var w windows
			defer func() { opened <- w }()
			if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
				t.Error(err)
				return
			}
			framer := http2.NewFramer(conn, conn)
			if err := framer.WriteSettings(); err != nil {
				t.Error(err)
			}
			for w.connection == 0 {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Error(err)
					return
				}
				switch f := frame.(type) {
				case *http2.SettingsFrame:
					if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
						w.answer = size
					}
				case *http2.WindowUpdateFrame:
					w.connection = f.Increment
				}
			}
		},
	}
	server.StartTLS()
	defer server.Close()
	for _, config := range []*rest.Config{
		{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, BearerToken: "wrapped", UserAgent: "twice"},
	} {
		over, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		LimitBuffers(over)
		LimitBuffers(over) // client-go shares it
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := over.RoundTrip(request); err == nil {
			response.Body.Close()
			t.Error("the server has answered")
		}
		if got, want := <-opened, (windows{MaxAheadBytes, MaxAheadOfConnection}); got != want {
			t.Errorf("the windows are %v, want %v", got, want)
		}
	}
}
