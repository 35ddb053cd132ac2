package registrar

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// withoutConditions names the entries of an object that were sent with matchConditions and came back without them. API servers before
// Kubernetes 1.28 do not know the field, and drop it without an error.
func withoutConditions(sent, stored runtime.Object) (names []string) {
	kept := map[string]int{}
	for _, e := range entriesOf(stored) {
		kept[e.name] = e.conditions
	}
	for _, e := range entriesOf(sent) {
		if e.conditions > kept[e.name] {
			names = append(names, e.name)
		}
	}
	return names
}

// Warning names the entries whose conditions the API server does not keep, and the remedy; empty if it keeps all.
func (c *Diff) Warning() string {
	if len(c.WithoutConditions) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: the API server has dropped the matchConditions of %s, as Kubernetes before 1.28 does: these entries also bring "+
		"leases, events and other requests that conditions leave out, and while the mesh is down fail-closed entries refuse them; "+
		"leave namespaces out by a namespaceSelector of each hook, name groups and resources in rules, or upgrade the cluster",
		c.Object, strings.Join(c.WithoutConditions, ", "))
}

// sentEntry is an entry of either kind.
type sentEntry struct {
	name       string
	conditions int
}

func entriesOf(object runtime.Object) (all []sentEntry) {
	switch o := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			all = append(all, sentEntry{o.Webhooks[i].Name, len(o.Webhooks[i].MatchConditions)})
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			all = append(all, sentEntry{o.Webhooks[i].Name, len(o.Webhooks[i].MatchConditions)})
		}
	}
	return all
}
