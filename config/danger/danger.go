// Package danger finds hooks that can stop a cluster when nobody answers for them, the mesh included. It knows no rule about
// rules and selectors: samples of the writes that a cluster lives on are matched with the hooks, by the code that matches
// reviews. matchConditions do not count: the API server does not know them, and refuses what it cannot ask the mesh about.
package danger

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// The codes of what is dangerous. Each has to be acknowledged by name.
const (
	// CodeLeases: writes of Leases stop with the hook. Controllers lose what they lead, and nodes are taken for dead.
	CodeLeases = "danger-leases"
	// CodeNodes: nodes cannot join, nor say how they are.
	CodeNodes = "danger-nodes"
	// CodeCertificates: nodes get no certificates.
	CodeCertificates = "danger-certificates"
	// CodeEvents: events are lost, and every write of one waits for the hook.
	CodeEvents = "danger-events"
	// CodeSystem: what a cluster needs to mend itself, in kube-system, stops with the hook.
	CodeSystem = "danger-kube-system"
	// CodeOwnNamespace: the mesh cannot be mended while the hook does not answer: its own Pods have to pass it.
	CodeOwnNamespace = "danger-own-namespace"
)

// Is reports whether a code is one of those that have to be acknowledged.
func Is(code string) bool { return strings.HasPrefix(code, "danger-") }

// Options say what is not the same everywhere.
type Options struct {
	// OwnNamespace is where the mesh runs; empty when it does not run in a cluster that it serves.
	OwnNamespace string
	// Only says which hooks are looked at; nil means all.
	Only func(h *match.Hook) bool
}

// Findings are the dangers of a configuration: at most one for each hook and code, in the order of the hooks. ctx is
// for what samples are matched with.
func Findings(ctx context.Context, s *match.Snapshot, o Options) []match.Finding {
	var findings []match.Finding
	samples := samplesOf(o)
	for _, h := range s.Hooks() {
		if h.FailurePolicy != admissionregistrationv1.Fail || h.Route.Shadow || o.Only != nil && !o.Only(h) {
			continue
		}
		said := map[string]bool{}
		for i := range samples {
			sample := &samples[i]
			if said[sample.code] || !sample.meets(ctx, h) {
				continue
			}
			said[sample.code] = true
			findings = append(findings, match.Finding{
				Severity: match.SeverityWarning, Code: sample.code, Path: h.Path(".failurePolicy"),
				Message: fmt.Sprintf("hook %q fails closed and is asked about %s, for example: %s. %s",
					h.ID.Name, sample.what, sample.example(), sample.why),
			})
		}
	}
	return findings
}
