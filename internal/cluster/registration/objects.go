package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Objects are the two webhook configurations that hold the entries of a cluster. Either is nil if it is not there.
type Objects struct {
	// Mutating has the entries of mutating hooks, in the order in which they must be called.
	Mutating *admissionregistrationv1.MutatingWebhookConfiguration
	// Validating has the entries of validating hooks.
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
}

// For leaves out an object that was not made for a cluster.
func (o Objects) For(cluster string) Objects {
	if o.Mutating != nil && !serves(o.Mutating, cluster) {
		o.Mutating = nil
	}
	if o.Validating != nil && !serves(o.Validating, cluster) {
		o.Validating = nil
	}
	return o
}

func serves(o metav1.Object, cluster string) bool {
	of, ours := MadeFor(o)
	return ours && of == cluster
}

// Addresses are the addresses of the entries, in their order.
func (o Objects) Addresses() (mutating, validating []*admissionregistrationv1.WebhookClientConfig) {
	if o.Mutating != nil {
		for i := range o.Mutating.Webhooks {
			mutating = append(mutating, &o.Mutating.Webhooks[i].ClientConfig)
		}
	}
	if o.Validating != nil {
		for i := range o.Validating.Webhooks {
			validating = append(validating, &o.Validating.Webhooks[i].ClientConfig)
		}
	}
	return mutating, validating
}

// Capability is the capability that the entries show; zero if they show none.
func (o Objects) Capability() identity.Capability {
	mutating, validating := o.Addresses()
	for _, address := range append(mutating, validating...) {
		if c := CapabilityIn(address); !c.IsZero() {
			return c
		}
	}
	return identity.Capability{}
}
