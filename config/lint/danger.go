package lint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// The codes of dangers: each has to be acknowledged by name.
const (
	// CodeLeases: writes of Leases stop with the hook. Controllers lose what they lead, and nodes are taken for dead.
	CodeLeases = "danger-leases"
	// CodeNodes: nodes cannot join, nor report their status.
	CodeNodes = "danger-nodes"
	// CodeCertificates: nodes get no certificates.
	CodeCertificates = "danger-certificates"
	// CodeEvents: events are lost, and every write of one waits for the hook.
	CodeEvents = "danger-events"
	// CodeSystem: writes in kube-system, which a cluster needs for its own repair, stop with the hook.
	CodeSystem = "danger-kube-system"
	// CodeOwnNamespace: the mesh cannot be mended while the hook does not answer: its own Pods have to pass it.
	CodeOwnNamespace = "danger-own-namespace"
	// CodeOwnEntry: a hook is an entry of the mesh itself, which would call itself.
	CodeOwnEntry = "danger-own-entry"
)

// IsDanger reports whether a finding has to be acknowledged.
func IsDanger(code string) bool { return strings.HasPrefix(code, "danger-") }

// Dangers finds fail-closed hooks that can stop a cluster while no host, or no mesh, answers. The same code that matches
// reviews matches sample writes with the rules and selectors of each hook. matchConditions do not count: the API server
// does not evaluate them, and refuses a write that it cannot ask the mesh about.
//
// A hook has at most one finding for each code, in the order of the hooks. The mesh runs in ownNamespace; it is empty when
// the mesh runs in no cluster that it serves. only selects the hooks. ctx bounds the matching.
func Dangers(ctx context.Context, s *match.Snapshot, ownNamespace string, only func(*match.Hook) bool) []match.Finding {
	var findings []match.Finding
	dangers := dangersOf(ownNamespace)
	for _, h := range s.Hooks() {
		if h.FailurePolicy != admissionregistrationv1.Fail || h.Route.Shadow || !only(h) {
			continue
		}
		for _, d := range dangers {
			i := slices.IndexFunc(d.attributes, func(a *match.Attributes) bool { return mayStop(ctx, h, a) })
			if i >= 0 {
				findings = append(findings, warning(d.code, h.Path(".failurePolicy"), "hook %q fails closed and is asked about %s, for example: %s. %s",
					h.ID.Name, d.what, d.writes[i].example(), d.why))
			}
		}
	}
	return findings
}

// mayStop reports whether the API server would ask the hook about the write, or refuse the write without asking. An error
// and a panic count as a danger.
func mayStop(ctx context.Context, h *match.Hook, a *match.Attributes) (stops bool) {
	defer func() {
		if recover() != nil {
			stops = true
		}
	}()
	d := h.Selects(ctx, a)
	return d.Match || d.Err != nil
}

// example describes the write for people.
func (w *write) example() string {
	where := w.name
	if w.namespace != "" {
		where = w.namespace + "/" + w.name
	}
	return fmt.Sprintf("%s %s %s by %s", w.operation, w.resource, where, w.user)
}
