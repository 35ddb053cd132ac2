package outbound

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// conversionTimeout bounds a call to a conversion webhook, which the time left to the review bounds too: setGlobalDefaults of
// k8s.io/apiserver/pkg/util/webhook.
const conversionTimeout = 30 * time.Second

// Conversions calls the conversion webhooks of a cluster, as admission webhooks are called: over the same connections, with
// the same resolver and identities, and within the same limits and shares of the cluster. After Close every call fails.
func (c *Client) Conversions(cluster string) custom.Caller {
	return conversions{client: c, cluster: cluster}
}

type conversions struct {
	client  *Client
	cluster string
}

// CallConversion implements [custom.Caller]. It calls the webhook on the goroutine of its caller.
func (cs conversions) CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	c := cs.client
	x := &call{cluster: cs.cluster, cancel: cancel, done: func(review.Result) {}}
	x.Deadline, _ = ctx.Deadline()
	x.Span = trace.SpanContextFromContext(ctx)
	if c.options.Memory != nil {
		var err error
		if x.reservation, err = c.options.Memory.Reserve(cs.cluster, 0); err != nil {
			return nil, notStarted(failure(review.FailureOverload, "%w", err))
		}
		defer x.reservation.Release()
	}
	if f := c.enter(x); f != nil { // From now on Close waits for this call, and ends it.
		return nil, f
	}
	defer c.leave(x)
	e, err := c.locate(ctx, x.cluster, clientConfig(at))
	if err != nil {
		return nil, err
	}
	a := newAttempt(e, x, jsonreview.BodyOf(body))
	answer, f := c.post(ctx, a)
	if f != nil {
		return nil, f
	}
	if err := unconverted(answer, a.url.Host); err != nil {
		if ctx.Err() != nil { // An answer that our hanging up cut off is none.
			return nil, a.endOf(ctx, "reading the answer")
		}
		return nil, err
	}
	return answer.Bytes, nil
}

// unconverted is why an answer converts nothing, before its body is read.
func unconverted(a *jsonreview.Answer, host string) error {
	if f := a.Fault(); f != nil {
		return failureOf(f)
	}
	if len(a.Bytes) == 0 {
		return fmt.Errorf("%s answered HTTP %d with an empty body", host, a.StatusCode)
	}
	return nil
}

// clientConfig converts a clientConfig of a CustomResourceDefinition to a webhook configuration's: the fields are the same.
func clientConfig(at *apiextensionsv1.WebhookClientConfig) *admissionregistrationv1.WebhookClientConfig {
	return &admissionregistrationv1.WebhookClientConfig{
		URL: at.URL, CABundle: at.CABundle, Service: (*admissionregistrationv1.ServiceReference)(at.Service),
	}
}
