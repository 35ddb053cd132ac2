package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// webhook is the caller of the bridge. It notes the URLs that it is asked to call.
type webhook struct {
	mu     sync.Mutex
	called []string
	answer func(ctx context.Context, review []byte) ([]byte, error)
}

func (w *webhook) CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error) {
	w.mu.Lock()
	w.called = append(w.called, *at.URL)
	w.mu.Unlock()
	return w.answer(ctx, review)
}

// definitions is an API server with the definitions a.example.com, which has a webhook, and b.example.com, which has none.
func definitions(w http.ResponseWriter, r *http.Request) {
	at := "https://a.example.com/convert"
	name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	d := apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	list := apiextensionsv1.CustomResourceDefinitionList{TypeMeta: metav1.TypeMeta{Kind: "CustomResourceDefinitionList"}}
	switch name {
	case "as.a.example.com":
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &at}},
		}
		list.Items = append(list.Items, d)
	case "bs.b.example.com":
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		list.Items = append(list.Items, d)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&list)
}

func TestABridgeCallsTheConversionWebhookThatItsOwnClusterNames(t *testing.T) {
	d := newDispatcher(t)
	w := &webhook{answer: func(_ context.Context, review []byte) ([]byte, error) {
		if bytes.Equal(review, []byte("fail")) {
			return nil, errors.New("connection refused")
		}
		return append([]byte("converted "), review...), nil
	}}
	d.webhook = w
	d.bridge(http.HandlerFunc(definitions))
	elsewhere := "https://attacker.example.com"
	convert := func(definition string, review []byte) (string, error) {
		answer, err := d.server.Conversions("east", definition).CallConversion(t.Context(), &apiextensionsv1.WebhookClientConfig{URL: &elsewhere}, review)
		return string(answer), err
	}
	if got, err := convert("as.a.example.com", []byte("one")); got != "converted one" || err != nil {
		t.Errorf("converted: %q, %v", got, err)
	}
	for name, test := range map[string]struct {
		definition string
		review     []byte
		want       string
	}{
		"no webhook":          {"bs.b.example.com", nil, "bs.b.example.com has no conversion webhook"},
		"no such definition":  {"cs.c.example.com", nil, "no CustomResourceDefinition"},
		"not a name":          {"../as.a.example.com", nil, "may not ask for"},
		"another query":       {"as.a.example.com?x", nil, "may not ask for"},
		"the webhook is away": {"as.a.example.com", []byte("fail"), "connection refused"},
		"a review too large":  {"as.a.example.com", make([]byte, MaxConversionBytes+1), "too large"},
	} {
		if got, err := convert(test.definition, test.review); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, %v; want an error with %q", name, got, err, test.want)
		}
	}
	if got, err := convert("as.a.example.com", make([]byte, MaxConversionBytes-len("converted "))); err != nil || len(got) != MaxConversionBytes {
		t.Errorf("the largest answer: %d bytes, %v", len(got), err)
	}
	if _, err := convert("as.a.example.com", make([]byte, MaxConversionBytes)); !errors.Is(err, errTooLarge) {
		t.Errorf("an answer too large: %v", err)
	}
	for _, at := range w.called {
		if at != "https://a.example.com/convert" {
			t.Errorf("%s was called", at)
		}
	}
	if _, err := d.server.Conversions("south", "as.a.example.com").CallConversion(t.Context(), nil, nil); !errors.Is(err, ErrNoBridge) {
		t.Errorf("without a bridge: %v", err)
	}
}

// defining is the way to the API server of definitions.
func defining() answers.Transport {
	return answers.Transport{RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		definitions(w, r)
		return w.Result(), nil
	})}
}

// TestAConversionThatFindsNoMemoryIsNotRead: the largest review passes where there is room for it, and the bytes are given back.
func TestAConversionThatFindsNoMemoryIsNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		total, length int64
		code          int
	}{
		"as much as there is":    {4 * MaxConversionBytes, MaxConversionBytes, http.StatusOK},
		"a byte less":            {4*MaxConversionBytes - 2, MaxConversionBytes, http.StatusServiceUnavailable},
		"of no length":           {4*MaxConversionBytes - 2, -1, http.StatusServiceUnavailable},
		"a small one":            {4*MaxConversionBytes - 2, 1, http.StatusOK},
		"one that is too large":  {4 * MaxConversionBytes, MaxConversionBytes + 1, http.StatusRequestEntityTooLarge},
		"nothing but the answer": {1 << 10, 0, http.StatusNotFound}, // of the API server
	} {
		over := defining()
		over.Cluster = "prod-1"
		var err error
		if over.Memory, err = memory.New(memory.Options{Total: test.total}); err != nil {
			t.Fatal(err)
		}
		c := newConverter(&url.URL{Scheme: "http", Host: "api"}, over, &webhook{answer: func(context.Context, []byte) ([]byte, error) { return nil, nil }})
		body := strings.NewReader(strings.Repeat("x", int(max(test.length, 0))))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, conversionPath+"as.a.example.com", body)
		r.ContentLength = test.length
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != test.code || over.Memory.InUse() != 0 {
			t.Errorf("%s: HTTP %d %s, and %d bytes are booked", name, w.Code, w.Body, over.Memory.InUse())
		}
		if read := body.Len() < int(test.length); read != (test.code != http.StatusServiceUnavailable && test.length > 0) {
			t.Errorf("%s: the review is read: %t", name, read)
		}
	}
}

func TestConversionsOfABridgeAreBounded(t *testing.T) {
	var now, most atomic.Int32
	full, release := make(chan struct{}), make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) }) // there may be as many again, once some have ended
	c := newConverter(&url.URL{Scheme: "http", Host: "api"}, defining(), &webhook{answer: func(context.Context, []byte) ([]byte, error) {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		if n == MaxConversions {
			fill()
		}
		<-release
		now.Add(-1)
		return nil, nil
	}})
	post := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, conversionPath+"as.a.example.com", strings.NewReader("x")))
		return w.Code
	}
	var all sync.WaitGroup
	for range MaxConversions * 2 {
		all.Go(func() { post(t.Context()) })
	}
	<-full
	gone, leave := context.WithCancel(t.Context())
	leave()
	post(gone) // returns although all slots are taken
	close(release)
	all.Wait()
	if most.Load() != MaxConversions {
		t.Errorf("%d conversions at a time, want %d", most.Load(), MaxConversions)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
