package bridge

import (
	"crypto/tls"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// lasting is a channel until a test ends it.
type lasting struct {
	identity.Channel
	ended *atomic.Pointer[error]
}

func (c lasting) Identity() (identity.Peer, error) {
	if why := c.ended.Load(); why != nil {
		return identity.Peer{}, *why
	}
	return c.Channel.Identity()
}

func TestAConnectionIsAskedWhoCallsWithEachReview(t *testing.T) {
	for _, why := range []error{identity.ErrExpired, identity.ErrUntrusted} {
		var ended atomic.Pointer[error]
		var opened atomic.Int32
		e := serveWith(t, newBridge(t, testOptions(allow)), tls.VerifyClientCertIfGiven, ServerOptions{
			Channel: func(state *tls.ConnectionState) identity.Channel {
				opened.Add(1)
				return lasting{verified(state), &ended}
			},
		})
		for _, client := range []*http.Client{e.client(t), e.client2(t)} {
			ended.Store(nil)
			before := opened.Load()
			for range 3 {
				if got := ask(t, client, e.url(validatePath), reviewOf("u1", 0)); !got.allowed {
					t.Fatalf("before: %+v", got)
				}
			}
			ended.Store(&why)
			got := ask(t, client, e.url(validatePath), reviewOf("u1", 0))
			if got.status != http.StatusUnauthorized || !strings.Contains(got.message, why.Error()) {
				t.Errorf("after: %+v, want 401 that says why", got)
			}
			if n := opened.Load() - before; n != 1 {
				t.Errorf("%d connections were looked at, want the one", n)
			}
			ended.Store(nil) // as for a certificate that the caller has renewed
			if got := ask(t, client, e.url(validatePath), reviewOf("u1", 0)); !got.allowed {
				t.Errorf("afterwards: %+v", got)
			}
			if n := opened.Load() - before; n != 2 {
				t.Errorf("%d connections were opened, want a new one for the new certificate", n)
			}
		}
	}
}
