package registration

import (
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterAnnotation names the cluster that a registration was made for. Nothing else has it.
const clusterAnnotation = "portcullis.dev/cluster"

// MadeFor is the cluster that an object was made for, if it is one of a registration; false for every other object.
func MadeFor(m metav1.Object) (cluster string, ok bool) {
	cluster, ok = m.GetAnnotations()[clusterAnnotation]
	return cluster, ok
}

// Reviews is the cluster whose reviews the mesh takes at an address, also if registration did not write it; empty for an address
// that is none of a bridge. The host of the address does not matter.
func Reviews(c *admissionregistrationv1.WebhookClientConfig) (cluster string) {
	_, rest, _ := strings.Cut(pathOf(c), "/v1/clusters/") // a prefix before it may come from Options.URL
	segments := strings.Split(rest, "/")                  // cluster, stage, and perhaps an entry and its plan
	if len(segments) < 2 || len(segments) > 4 {
		return ""
	}
	switch segments[1] {
	case "mutate", "reinvoke", "validate", "admit", "enforce":
		return segments[0]
	}
	return ""
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
