package outbound

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// cutting answers as allowing does, but for the requests whose numbers, from 1, cut has: it reads them, writes a text and closes the
// connection.
func cutting(t *testing.T, seen *atomic.Int32, cut map[int32]string, reset bool) http.HandlerFunc {
	t.Helper()
	allow := allowing(t)
	return func(rw http.ResponseWriter, r *http.Request) {
		text, closes := cut[seen.Add(1)]
		if !closes {
			allow(rw, r)
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		inner, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(inner, text)
		if tcp, ok := inner.(interface{ NetConn() net.Conn }); ok && reset {
			_ = tcp.NetConn().(*net.TCPConn).SetLinger(0)
			_ = tcp.NetConn().Close()
		}
		_ = inner.Close()
	}
}

// TestARequestThatIsLostWithAKeptConnectionIsSentOnceMore, on a new one, where the hook has no side effects. kube-apiserver does not.
func TestARequestThatIsLostWithAKeptConnectionIsSentOnceMore(t *testing.T) {
	const none, some = admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassSome
	lost := map[int32]string{2: ""}
	for name, test := range map[string]struct {
		effects admissionregistrationv1.SideEffectClass
		dryRun  bool
		cut     map[int32]string
		ends    [2]string // of two calls
		seen    int32     // requests
	}{
		"a hook without side effects":         {none, false, lost, [2]string{"allowed", "allowed"}, 3},
		"without any in a dry run":            {admissionregistrationv1.SideEffectClassNoneOnDryRun, true, lost, [2]string{"allowed", "allowed"}, 3},
		"in a dry run alone, and it is none":  {admissionregistrationv1.SideEffectClassNoneOnDryRun, false, lost, [2]string{"allowed", "lost"}, 2},
		"with side effects":                   {some, false, lost, [2]string{"allowed", "lost"}, 2},
		"with side effects, in a dry run":     {some, true, lost, [2]string{"allowed", "lost"}, 2},
		"with unknown ones":                   {admissionregistrationv1.SideEffectClassUnknown, false, lost, [2]string{"allowed", "lost"}, 2},
		"declaring none":                      {"", false, lost, [2]string{"allowed", "lost"}, 2},
		"a new connection":                    {none, false, map[int32]string{1: ""}, [2]string{"lost", "allowed"}, 2},
		"the second connection too":           {none, false, map[int32]string{2: "", 3: ""}, [2]string{"allowed", "lost"}, 3},
		"in the middle of the head":           {none, false, map[int32]string{2: "HTTP/1.1 2"}, [2]string{"allowed", "lost"}, 2},
		"at the first byte":                   {none, false, map[int32]string{2: "H"}, [2]string{"allowed", "lost"}, 2},
		"in the middle of an answer":          {none, false, map[int32]string{2: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"}, [2]string{"allowed", "lost"}, 2},
		"after an answer that asks for again": {none, false, map[int32]string{1: "HTTP/1.1 503 X\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n", 3: ""}, [2]string{"allowed", "allowed"}, 4},
	} {
		for way, reset := range map[string]bool{"closed": false, "reset": true} {
			if len(test.cut[2]) > 0 && reset {
				continue // A reset may overtake the bytes.
			}
			t.Run(name+", "+way, func(t *testing.T) {
				var seen atomic.Int32
				w := serve(t, cutting(t, &seen, test.cut, reset))
				c := newClient(t, Options{})
				for i, end := range test.ends {
					h := w.hook("/")
					h.SideEffects = test.effects
					b := batch(h)
					b.Request.DryRun = &test.dryRun
					got := start(t, c, b).wait()
					want(t, got, end)
					if end == "lost" && got[0].Failure.NotStarted {
						t.Errorf("call %d is said not to have been started: %v", i, got[0].Failure)
					}
				}
				if n := seen.Load(); n != test.seen {
					t.Errorf("the webhook has seen %d requests, want %d", n, test.seen)
				}
			})
		}
	}
}
