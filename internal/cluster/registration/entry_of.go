package registration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// EntryOf is the entry of a cluster that an address calls; false for any other address, and for one without a plan.
func EntryOf(c *admissionregistrationv1.WebhookClientConfig, cluster string) (e match.Entry, ok bool) {
	if Reviews(c) != cluster || cluster == "" {
		return match.Entry{}, false
	}
	_, rest, _ := strings.Cut(pathOf(c), "/v1/clusters/"+cluster+"/")
	if shown, behind, ok := strings.Cut(rest, "/"); ok && shown == capabilitySegment {
		_, rest, _ = strings.Cut(behind, "/")
	}
	_, text, _ := strings.Cut(rest, "/") // behind the stage
	e = match.ParseEntry(text)
	return e, e.Timeout != 0
}
