package bridge

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// errCapabilitiesOff is the answer to every capability where none is accepted.
var errCapabilitiesOff = errors.New("this dispatcher accepts no capability: " +
	"start it with --allow-capabilities, or call with a client certificate")

// errCapability discloses neither the existence of the cluster nor the fault of the capability.
var errCapability = errors.New("the capability in the path is not accepted for the cluster in the path: it is malformed, or removed, or it has " +
	"expired, or the name of the cluster is wrong. Print the entries again with `portcullis cluster register NAME --capability-file FILE`, " +
	"with a capability of spec.capabilities of the Cluster document")

// authorizeCapability checks that a capability is accepted for the cluster. It decides alone: a client certificate, if the caller
// has one too, neither helps nor harms, since a caller could leave it out.
func (x *exchange) authorizeCapability(text, cluster string) *refusal {
	x.forgetPath()
	if x.bridge.options.AuthorizeCapability == nil {
		return unauthorized(errCapabilitiesOff)
	}
	shown, err := identity.ParseCapability(text)
	if err == nil {
		err = x.bridge.options.AuthorizeCapability(shown, cluster)
	}
	if errors.Is(err, review.ErrNoConfiguration) {
		return x.bridge.unjudged(err)
	}
	if err != nil {
		x.writer.Header().Set("Connection", "close") // an earlier proof on this connection ends with it
		return unauthorized(errCapability)
	}
	if !x.connection.prove(cluster, x.writer.Header()) {
		return tooManyConnections()
	}
	x.cluster = cluster
	return nil
}

// tooManyConnections refuses a connection by a capability that is accepted. The policy of the entry decides if trying again does not help.
func tooManyConnections() *refusal {
	return &refusal{review.OutcomeRefused, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		fmt.Sprintf("portcullis: %d connections are open by the capabilities of the cluster, the most at a time: try again", maxProved)}
}

// forgetPath removes the capability from the request, so that nothing that prints the request prints it.
func (x *exchange) forgetPath() {
	x.request.URL.Path, x.request.URL.RawPath, x.request.RequestURI = "", "", ""
}
