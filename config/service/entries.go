package service

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// CodeEntryDrift is the code of a finding about a Cluster: its entries were generated from another configuration than the one
// in force.
const CodeEntryDrift = "entry-drift"

// entryDrift returns the finding about the entries of a cluster that the dispatchers have seen; none if they match.
func (m *meshState) entryDrift(key config.Key) config.Problems {
	if key.Kind != kinds.ClusterKind {
		return nil
	}
	var first *etcdstore.EntryDrift
	var on []string
	for i := range m.dispatchers {
		d := &m.dispatchers[i]
		for j := range d.EntryDrifts {
			if d.EntryDrifts[j].Cluster != key.Name {
				continue
			}
			on = append(on, d.ID)
			if first == nil {
				first = &d.EntryDrifts[j]
			}
		}
	}
	if first == nil {
		return nil
	}
	return config.Problems{{
		Severity: match.SeverityWarning, Code: CodeEntryDrift, Key: key,
		Message: fmt.Sprintf("its API servers call the mesh by entries that were made from another configuration: %s (seen by %s); "+
			"run `portcullis cluster register %s` and apply what it prints", describeDrift(first), firstOf(on), key.Name),
	}}
}

func describeDrift(d *etcdstore.EntryDrift) string {
	var parts []string
	if len(d.Unplanned) > 0 {
		names := make([]string, len(d.Unplanned))
		for i, h := range d.Unplanned {
			names[i] = fmt.Sprintf("hook %q of %s", h.Hook, h.Object)
		}
		more := ""
		if d.UnplannedMore > 0 {
			more = fmt.Sprintf(" and %d more", d.UnplannedMore)
		}
		parts = append(parts, "new or changed since: "+strings.Join(names, ", ")+more)
	}
	if d.Gone > 0 {
		parts = append(parts, counted(d.Gone, "hook")+" changed or gone")
	}
	return strings.Join(parts, "; ")
}
