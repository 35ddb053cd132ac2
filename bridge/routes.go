package bridge

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// endpoint is a target of posted reviews. It is read-only once it is served.
type endpoint struct {
	name     string // the segment of the path behind the cluster
	stage    admissionv1.Stage
	enforces bool   // speaks the protocol of /enforce
	route    string // as spans have it; it has no capability
	span     string // its name
}

// endpoints are tried by the mux from the last to the first.
func endpoints() []endpoint {
	return []endpoint{
		{name: "enforce", stage: admissionv1.Stage_STAGE_VALIDATE, enforces: true},
		{name: "admit", stage: admissionv1.Stage_STAGE_ADMIT},
		{name: "reinvoke", stage: admissionv1.Stage_STAGE_REINVOKE},
		{name: "mutate", stage: admissionv1.Stage_STAGE_MUTATE},
		{name: "validate", stage: admissionv1.Stage_STAGE_VALIDATE},
	}
}

// capabilityParam is the parameter of a path that has a capability.
const capabilityParam = "capability"

// prefix is the beginning of paths, before the name of an endpoint.
type prefix struct {
	path   string
	serves func(endpoint) bool
}

// prefixes are tried by the mux from the last to the first. Direct callers have certificates: a capability reaches only the
// endpoints that API servers call.
func prefixes() []prefix {
	const cluster = "/v1/clusters/{cluster}/"
	return []prefix{
		{cluster + "capability/{" + capabilityParam + "}/", func(to endpoint) bool { return !to.enforces && to.stage != admissionv1.Stage_STAGE_ADMIT }},
		{cluster, func(endpoint) bool { return true }},
	}
}

// newMux routes POSTs: to serve with the endpoint, the cluster and the entry, and everything else to unrouted. Of a request
// the mux reads the method and the path alone.
func newMux(b *Bridge) (*runtime.ServeMux, error) {
	mux := runtime.NewServeMux(
		runtime.WithRoutingErrorHandler(b.unrouted),
		runtime.WithDisablePathLengthFallback(), // a form in the place of a review is no GET
	)
	for _, from := range prefixes() {
		for _, to := range endpoints() {
			if !from.serves(to) {
				continue
			}
			if err := b.route(mux, from.path+to.name, to); err != nil {
				return nil, err
			}
		}
	}
	return mux, nil
}

func (b *Bridge) route(mux *runtime.ServeMux, path string, to endpoint) error {
	for _, entry := range []string{"/{entry}", "", "/{entry=*/*}"} { // an entry with its plan is the usual case
		at := to
		at.route = path + strings.Replace(entry, "{entry=*/*}", "{entry}/{plan}", 1)
		at.span = http.MethodPost + " " + at.route
		err := mux.HandlePath(http.MethodPost, path+entry, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
			b.serve(w, r, &at, params)
		})
		if err != nil {
			return fmt.Errorf("routing %s: %w", path+entry, err)
		}
	}
	return nil
}

// unrouted answers a request that is no POST to an endpoint.
//
//nolint:revive // the gateway's signature
func (b *Bridge) unrouted(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, status int) {
	x := newExchange(b, w, r, &endpoint{})
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
