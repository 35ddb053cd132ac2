package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

const (
	// conversionPath and the name of a CustomResourceDefinition are the path of a conversion. No API server has it.
	conversionPath = "/portcullis/conversions/"
	// MaxConversionBytes bounds a ConversionReview, and the answer to it, in bytes.
	MaxConversionBytes = 8 << 20
	// MaxConversions is how many ConversionReviews a bridge holds at a time. Others wait, with their bodies unread, for as long as their
	// reviews have time.
	MaxConversions = 16
	// maxErrorBytes bounds the text of an error.
	maxErrorBytes = 256
)

// converter calls the conversion webhooks of a cluster for its dispatchers. The converter reads the CustomResourceDefinition itself and
// calls the webhook at its address: a dispatcher cannot choose an address.
type converter struct {
	api    *url.URL
	client *http.Client // to the API server
	caller custom.Caller
	slots  chan struct{}
	over   answers.Transport
}

func newConverter(api *url.URL, over answers.Transport, caller custom.Caller) *converter {
	over.ItemByItem = true
	return &converter{api: api, over: over, client: &http.Client{Transport: over}, caller: caller, slots: make(chan struct{}, MaxConversions)}
}

// conversionOf is the name of the definition whose conversion a request asks for.
func conversionOf(r *http.Request) (definition string, ok bool) {
	definition, ok = strings.CutPrefix(r.URL.Path, conversionPath)
	return definition, ok && len(validation.IsDNS1123Subdomain(definition)) == 0 && r.URL.RawPath == "" && r.Method == http.MethodPost
}

// ServeHTTP answers with the body of the webhook's answer. An error is text: 404 without a webhook for the definition, 413 for a review that
// is too large, 503 without memory for a review, and else 502.
func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	definition, _ := conversionOf(r)
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-r.Context().Done():
		return
	}
	booked, err := c.book(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer booked.Release()
	review, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxConversionBytes))
	if err != nil {
		http.Error(w, fmt.Sprintf("the ConversionReview cannot be read: %v", err), http.StatusRequestEntityTooLarge)
		return
	}
	at, err := c.webhookOf(r.Context(), definition)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	answer, err := c.caller.CallConversion(r.Context(), at, review)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(answer) // a dispatcher that has gone needs none
}

// book reserves the memory of a ConversionReview before it is read: twice its bytes, since the buffer that it is read into doubles.
func (c *converter) book(r *http.Request) (*memory.Reservation, error) {
	if c.over.Memory == nil {
		return nil, nil //nolint:nilnil // a reservation without accounting
	}
	bytes := r.ContentLength
	if bytes < 0 || bytes > MaxConversionBytes {
		bytes = MaxConversionBytes
	}
	booked, err := c.over.Memory.Reserve(c.over.Cluster, 2*bytes)
	if err != nil {
		return nil, fmt.Errorf("the ConversionReview is not read: %w", err)
	}
	return booked, nil
}

// webhookOf reads from the API server where the conversion webhook of a definition is. It lists one: that takes no right which the bridge does
// not need for dispatchers.
func (c *converter) webhookOf(ctx context.Context, definition string) (*apiextensionsv1.WebhookClientConfig, error) {
	at := c.api.JoinPath("apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	at.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + definition}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", definition, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: the API server answers HTTP %d", definition, response.StatusCode)
	}
	conversion, err := conversionIn(response.Body, definition)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", definition, err)
	case conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil:
		return nil, fmt.Errorf("CustomResourceDefinition %s has no conversion webhook", definition)
	}
	return conversion.Webhook.ClientConfig, nil
}

var errNoDefinition = errors.New("the cluster has no CustomResourceDefinition of that name")

// conversionIn is the conversion of a definition in a list. Nothing else of the list is read.
func conversionIn(list io.Reader, definition string) (*apiextensionsv1.CustomResourceConversion, error) {
	var found *apiextensionsv1.CustomResourceConversion
	_, err := answers.Items(list, func(raw []byte) error {
		var d struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Conversion apiextensionsv1.CustomResourceConversion `json:"conversion"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		if d.Metadata.Name == definition {
			found = &d.Spec.Conversion
		}
		return nil
	})
	if err == nil && found == nil {
		err = errNoDefinition
	}
	return found, err
}

// Conversions returns the caller of the conversion webhook of a CustomResourceDefinition, through whichever bridge of the cluster is connected.
func (r *Server) Conversions(cluster, definition string) custom.Caller {
	return bridgedConversion{transport: r.Transport(cluster), cluster: cluster, definition: definition}
}

// bridgedConversion has a bridge call the webhook of a definition.
type bridgedConversion struct {
	transport           http.RoundTripper
	cluster, definition string
}

// CallConversion implements [custom.Caller]. The bridge reads the clientConfig itself.
func (b bridgedConversion) CallConversion(ctx context.Context, _ *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error) {
	to := url.URL{Scheme: "http", Host: b.cluster + ".bridge", Path: conversionPath + b.definition}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	response, err := b.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
		return nil, fmt.Errorf("its bridge says: %q", strings.TrimSpace(string(text)))
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, MaxConversionBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > MaxConversionBytes:
		return nil, errTooLarge
	}
	return answer, nil
}

var errTooLarge = errors.New("its answer is larger than 8 MiB")
