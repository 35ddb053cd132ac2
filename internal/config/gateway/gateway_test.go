package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// open is a service that lets everybody in.
type open struct {
	configv1.UnimplementedConfigServiceServer
	analysisv1.UnimplementedAnalysisServiceServer
}

func (open) MayCall(context.Context) error { return nil }

// slow is a body that says when it is read, and ends when it is told.
type slow struct {
	reading chan<- struct{}
	end     <-chan struct{}
}

func (s slow) Read([]byte) (int, error) {
	s.reading <- struct{}{}
	<-s.end
	return 0, io.EOF
}

func TestOneCallerHoldsNoMoreBodiesThanItLeavesFree(t *testing.T) {
	g, err := gateway.New(gateway.Options{
		Service: open{}, Verify: func(state *tls.ConnectionState) identity.Channel { return identity.Named(state.ServerName) },
	})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(who string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, gateway.Prefix+"apply", body)
		r.TLS = &tls.ConnectionState{ServerName: who}
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w.Code
	}
	reading, end := make(chan struct{}), make(chan struct{})
	var requests sync.WaitGroup
	for range gateway.MaxBodies / 2 {
		requests.Go(func() { apply("one", slow{reading, end}) })
		<-reading
	}
	if code := apply("one", strings.NewReader("{}")); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	if code := apply("two", strings.NewReader("{}")); code != http.StatusNotImplemented {
		t.Errorf("another caller: %d", code)
	}
	close(end)
	requests.Wait()
	if code := apply("one", strings.NewReader("{}")); code != http.StatusNotImplemented {
		t.Errorf("when the others have ended: %d", code)
	}
}
