package outbound

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ConversionTimeout bounds a call to a conversion webhook, beside what the review leaves: setGlobalDefaults of
// k8s.io/apiserver/pkg/util/webhook.
const ConversionTimeout = 30 * time.Second

// Conversions calls the conversion webhooks of a cluster, as admission webhooks are called: over the same connections,
// with the same resolver and identities, and within the same limits and shares of the cluster. An answer is at most Options.MaxAnswerBytes long.
// After Close every call fails.
func (c *Client) Conversions(cluster string) custom.Caller {
	return conversions{client: c, cluster: cluster}
}

// conversions is Conversions.
type conversions struct {
	client  *Client
	cluster string
}

// CallConversion implements [custom.Caller].
func (c conversions) CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	return c.client.callConversion(ctx, c.cluster, at, body)
}

// callConversion calls a conversion webhook on the goroutine of its caller.
func (c *Client) callConversion(ctx context.Context, cluster string, at *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, ConversionTimeout)
	defer cancel()
	x := &call{cluster: cluster, cancel: cancel, done: func(review.Result) {}}
	x.Deadline, _ = ctx.Deadline()
	x.Span = trace.SpanContextFromContext(ctx)
	if f := c.enter(x); f != nil { // From now on Close waits for this call, and ends it.
		return nil, f
	}
	defer c.leave(x)
	e, err := c.locate(ctx, cluster, clientConfig(at))
	if err != nil {
		return nil, err
	}
	return c.convert(ctx, newExchange(e, x, plain(body)))
}

// convert waits for its turn, sends the review and reads the answer.
func (c *Client) convert(ctx context.Context, e *exchange) ([]byte, error) {
	t, f := c.targets.acquire(e.endpoint, e.call.cluster)
	if f != nil {
		return nil, f
	}
	defer c.targets.release(t, e.call.cluster)
	if f = c.wait(ctx, t, e); f != nil {
		return nil, f
	}
	defer c.all.leave(&e.call.pass)
	a, f := c.send(ctx, t, e)
	if f != nil {
		return nil, f
	}
	if err := a.unconverted(e.url.Host); err != nil {
		if ctx.Err() != nil { // What a webhook says when we hang up is no answer.
			return nil, e.endOf(ctx, "reading the answer")
		}
		return nil, err
	}
	return a.body, nil
}

// unconverted says why an answer converts nothing, before it is looked into; nil when it may.
func (a *answer) unconverted(host string) error {
	if f := a.wrong(); f != nil {
		return f
	}
	if len(a.body) == 0 {
		return fmt.Errorf("%s answered HTTP %s with an empty body", host, a.Status)
	}
	return nil
}

// clientConfig is a clientConfig of a CustomResourceDefinition as one of a webhook configuration: they are the same.
func clientConfig(at *apiextensionsv1.WebhookClientConfig) *admissionregistrationv1.WebhookClientConfig {
	cc := &admissionregistrationv1.WebhookClientConfig{URL: at.URL, CABundle: at.CABundle}
	if s := at.Service; s != nil {
		cc.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: s.Port}
	}
	return cc
}

// plain is a body in one piece.
type plain []byte

func (p plain) len() int64 { return int64(len(p)) }

func (p plain) open() io.ReadCloser { return io.NopCloser(bytes.NewReader(p)) }
