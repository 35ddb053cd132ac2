package outbound

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Reach returns an error unless the webhook that a clientConfig describes answers HTTPS in the same way in which it would be called:
// with the same resolver, CA bundle and identity. It sends a GET of its path; any answer will do. ctx bounds it.
func (c *Client) Reach(ctx context.Context, cluster string, cc *admissionregistrationv1.WebhookClientConfig) error {
	e, err := c.locate(ctx, cluster, cc)
	if err != nil {
		return err
	}
	t, err := c.open(e)
	if err != nil {
		return err
	}
	defer t.closeIdle()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.String(), http.NoBody)
	if err != nil {
		return err
	}
	r.Close = true
	e.direct(r)
	answer, err := t.RoundTrip(r)
	switch {
	case err != nil && connected:
		return fmt.Errorf("%s: %w", e.url.Host, unquoted(err))
	case err != nil:
		return fmt.Errorf("%s: %w", e.url.Host, short{err})
	}
	return answer.Body.Close()
}
