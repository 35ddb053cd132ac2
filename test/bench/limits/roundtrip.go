package limits

import (
	"context"
	"fmt"
	"net/http"

	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// permission is an answer of the size that answers have.
const permission = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` +
	`"response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}`

// RoundTrip is the limit of the JSON edge: one HTTPS round trip with a review, which nobody parses. Hooks play no part.
// Close ends it.
type RoundTrip struct {
	server *https.Server
	client *https.Client
	review []byte
}

// StartRoundTrip starts the server.
func StartRoundTrip(ctx context.Context, s scenario.Scenario, keys *pki.PKI) (*RoundTrip, error) {
	review, err := s.Review()
	if err != nil {
		return nil, err
	}
	server, err := https.Serve(ctx, keys, http.HandlerFunc(permit))
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return &RoundTrip{server: server, client: https.NewClient(keys), review: review}, nil
}

// permit reads a request to its end and permits it.
func permit(w http.ResponseWriter, r *http.Request) {
	if _, err := https.ReadAll(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(permission)) // a caller that has gone sees no answer
}

// Review is one round trip.
func (r *RoundTrip) Review(ctx context.Context) error {
	return r.client.Post(ctx, r.server.URL(), r.review)
}

// Close ends the server.
func (r *RoundTrip) Close() error {
	r.client.Close()
	return r.server.Close()
}
