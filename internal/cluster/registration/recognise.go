package registration

import (
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// capabilitySegment comes before a capability in a path.
const capabilitySegment = "capability"

// clusterAnnotation names the cluster that an object was made for.
const clusterAnnotation = "portcullis.dev/cluster"

// MadeFor is the cluster that an object was made for, if Meta names it; false for every other object.
func MadeFor(m metav1.Object) (cluster string, ok bool) {
	cluster, ok = m.GetAnnotations()[clusterAnnotation]
	return cluster, ok
}

// Reviews is the cluster whose reviews the mesh takes at an address, also if registration did not write it; empty for an address
// that is none of a bridge. The host of the address does not matter.
func Reviews(c *admissionregistrationv1.WebhookClientConfig) (cluster string) {
	_, rest, _ := strings.Cut(pathOf(c), "/v1/clusters/") // a prefix before it may come from Options.URL
	segments := strings.Split(rest, "/")                  // cluster, perhaps a capability, stage, and perhaps an entry and its plan
	if len(segments) > 3 && segments[1] == capabilitySegment {
		segments = slices.Delete(segments, 1, 3)
	}
	if len(segments) < 2 || len(segments) > 4 {
		return ""
	}
	switch segments[1] {
	case "mutate", "reinvoke", "validate", "admit", "enforce":
		return segments[0]
	}
	return ""
}

// CapabilityIn is the capability that an address shows; zero if it shows none, or is none of a bridge.
func CapabilityIn(c *admissionregistrationv1.WebhookClientConfig) identity.Capability {
	if Reviews(c) == "" {
		return identity.Capability{}
	}
	_, rest, _ := strings.Cut(pathOf(c), "/v1/clusters/")
	segments := strings.Split(rest, "/")
	if len(segments) <= 3 || segments[1] != capabilitySegment {
		return identity.Capability{}
	}
	shown, _ := identity.ParseCapability(segments[2])
	return shown
}

// pathOf is the path of an address; empty for none.
func pathOf(c *admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil && c.Service.Path != nil:
		return *c.Service.Path
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Path
		}
	}
	return ""
}
