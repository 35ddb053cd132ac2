package lint

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// The codes of dangers: each has to be acknowledged by name.
const (
	// CodeLeases: writes of Leases stop with the hook. Leaders of controllers lose their elections, and nodes are taken for
	// dead.
	CodeLeases = "danger-leases"
	// CodeNodes: nodes cannot join, nor report their status.
	CodeNodes = "danger-nodes"
	// CodeCertificates: nodes get no certificates.
	CodeCertificates = "danger-certificates"
	// CodeEvents: events are lost, and every write of one waits for the hook.
	CodeEvents = "danger-events"
	// CodeSystem: writes in kube-system, which a cluster needs for its own repair, stop with the hook.
	CodeSystem = registration.CodeSystem
	// CodeOwnNamespace: the mesh cannot be mended while the hook does not answer: its own Pods have to pass it.
	CodeOwnNamespace = registration.CodeOwnNamespace
	// CodeOwnEntry: a hook is an entry of the mesh itself, which would call itself.
	CodeOwnEntry = "danger-own-entry"
	// CodeNoHost: an apply leaves calls of a hook to hosts, and none is connected. Config/service finds it: documents do not tell.
	CodeNoHost = "danger-no-host"
)

// everyNamespace is the remedy where hooks would have a namespaceSelector.
const everyNamespace = "An initializer has no namespaceSelector and no conditions: name the namespace in spec.bypass.namespaces of each Cluster, " +
	"if no hook has to see it."

// IsDanger reports whether a finding has to be acknowledged.
func IsDanger(code string) bool { return strings.HasPrefix(code, "danger-") }

// Dangers finds fail-closed hooks that can stop a cluster while no host, or no mesh, answers. The same code that matches
// reviews matches sample writes with the rules and selectors of each hook. Of its matchConditions those count that the entries of
// the clusters have, since all hooks of the entry share them: the others the API server does not evaluate, and refuses a write
// that it cannot ask the mesh about. A write is no danger that is exempt, or always fails open, in each cluster of the hook.
//
// A hook has at most one finding for each code, in the order of the hooks. The mesh runs in ownNamespace; it is empty when
// the mesh runs in no cluster that it serves. only selects the hooks. ctx bounds the matching.
func Dangers(ctx context.Context, s *match.Snapshot, ownNamespace string, only func(*match.Hook) bool) []match.Finding {
	var findings []match.Finding
	dangers, entries, bypassed := dangersOf(ownNamespace), newShared(s.Hooks()), newBypassed(s)
	for _, h := range s.Hooks() {
		if h.FailurePolicy != admissionregistrationv1.Fail || h.Route.Shadow || !only(h) {
			continue
		}
		for _, d := range dangers {
			i := 0
			for i < len(d.writes) && (!mayStop(ctx, h, d.attributes[i]) || entries.keepsOut(h, &d.writes[i]) || bypassed.opens(h, d.attributes[i])) {
				i++
			}
			why := d.why
			if h.Initializes() {
				why += " " + everyNamespace
			}
			if config.KeyOf(h).Kind == kinds.PolicyKind {
				why += " A Policy leaves out namespaces by spec.exclude.namespaces."
			}
			if i < len(d.writes) {
				findings = append(findings, warning(d.code, h.Path(".failurePolicy"), "hook %q fails closed and is asked about %s, for example: %s. %s",
					h.ID.Name, d.what, d.writes[i].example(), why))
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
	return h.Brought(ctx, a)
}

// example describes the write for people.
func (w *write) example() string {
	where := w.name
	if w.namespace != "" {
		where = w.namespace + "/" + w.name
	}
	return fmt.Sprintf("%s %s %s by %s", w.operation, w.resource, where, w.user)
}
