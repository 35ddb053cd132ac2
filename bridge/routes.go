package bridge

import (
	"context"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// endpoint is a target of posted reviews.
type endpoint struct {
	name     string // the segment of the path behind the cluster
	stage    admissionv1.Stage
	enforces bool // the protocol is that of /enforce
}

// endpoints are tried by the mux from the last to the first.
func endpoints() []endpoint {
	return []endpoint{
		{"enforce", admissionv1.Stage_STAGE_VALIDATE, true},
		{"admit", admissionv1.Stage_STAGE_ADMIT, false},
		{"reinvoke", admissionv1.Stage_STAGE_REINVOKE, false},
		{"mutate", admissionv1.Stage_STAGE_MUTATE, false},
		{"validate", admissionv1.Stage_STAGE_VALIDATE, false},
	}
}

// newMux routes POSTs: to serve with the endpoint, the cluster and the entry, and everything else to unrouted. Of a request
// the mux reads the method and the path alone.
func newMux(b *Bridge) (*runtime.ServeMux, error) {
	mux := runtime.NewServeMux(
		runtime.WithRoutingErrorHandler(b.unrouted),
		runtime.WithDisablePathLengthFallback(), // a form in the place of a review is no GET
	)
	for _, to := range endpoints() {
		for _, entry := range []string{"/{entry}", "", "/{entry=*/*}"} { // an entry with its plan is the usual case
			path := "/v1/clusters/{cluster}/" + to.name + entry
			err := mux.HandlePath(http.MethodPost, path, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
				b.serve(w, r, to, params)
			})
			if err != nil {
				return nil, fmt.Errorf("routing %s: %w", path, err)
			}
		}
	}
	return mux, nil
}

// unrouted answers a request that is no POST to an endpoint.
//
//nolint:revive // the gateway's signature
func (b *Bridge) unrouted(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, status int) {
	x := newExchange(b, w, r, endpoint{})
	defer x.end()
	if status == http.StatusMethodNotAllowed {
		x.refuse(reject(status, metav1.StatusReasonMethodNotAllowed, "method %s is not served: use POST", r.Method))
		return
	}
	x.refuse(notFound())
}

func notFound() *refusal {
	return reject(http.StatusNotFound, metav1.StatusReasonNotFound,
		"no such path: post to /v1/clusters/{cluster}/{mutate|validate|reinvoke|admit|enforce}, with /{entry} or /{entry}/{plan} behind it if you like")
}
