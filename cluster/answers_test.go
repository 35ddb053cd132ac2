package cluster

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// answering is a transport with one answer, that counts the calls to close its connections.
type answering struct {
	body   string
	closed int
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func (a *answering) CloseIdleConnections() { a.closed++ }

func TestAnAnswerIsBounded(t *testing.T) {
	below := &answering{body: strings.Repeat("x", 100)}
	for most, ok := range map[int64]bool{100: true, 99: false} {
		client := &http.Client{Transport: limitedAnswers{below, most}}
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://cluster", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if (err == nil) != ok || ok && len(body) != 100 || !ok && !strings.Contains(err.Error(), "larger than 99 bytes") {
			t.Errorf("with a limit of %d: %d bytes, %v", most, len(body), err)
		}
	}
	utilnet.CloseIdleConnectionsFor(limitedAnswers{below, 1})
	if below.closed != 1 {
		t.Error("idle connections stay open")
	}
}
