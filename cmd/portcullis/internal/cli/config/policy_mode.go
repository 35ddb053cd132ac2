package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// policyMode is the mode of a Policy in all clusters.
type policyMode struct{ spec kinds.PolicySpec }

// policyModeOf is the mode of a Policy. A HookRoute may put all of it in shadow.
func policyModeOf(o *configv1.ConfigObject) (m policyMode) {
	var p kinds.Policy
	if err := json.Unmarshal(o.GetManifest().GetRaw(), &p); err == nil { // the mesh has read it
		m.spec = p.Spec
	}
	if mesh.Condition(o, "Deciding").GetReason() == "Shadow" {
		m.spec.Mode, m.spec.ModeByCluster = kinds.ModeShadow, nil
	}
	return m
}

// byCluster are the clusters of the policy whose mode is not the mode of the others, with their modes.
func (m policyMode) byCluster() map[string]any {
	all := map[string]any{}
	for cluster := range m.spec.ModeByCluster {
		if mode := m.spec.ModeIn(cluster); mode != m.spec.ModeIn("") && m.spec.AppliesIn(cluster) {
			all[cluster] = string(mode)
		}
	}
	return all
}

// addTo adds the mode to a status.
func (m policyMode) addTo(status map[string]any) {
	status["mode"] = string(m.spec.ModeIn(""))
	if all := m.byCluster(); len(all) > 0 {
		status["modeByCluster"] = all
	}
}

// String is the mode of most clusters first, and then each other mode with its clusters, as in "shadow; enforce in trial".
func (m policyMode) String() string {
	usual, other := m.spec.ModeIn(""), m.byCluster()
	var parts []string
	if len(m.spec.Clusters) == 0 || slices.ContainsFunc(m.spec.Clusters, func(c string) bool { return other[c] == nil }) {
		parts = append(parts, string(usual))
	}
	for _, mode := range []kinds.PolicyMode{kinds.ModeShadow, kinds.ModeWarn, kinds.ModeEnforce} {
		var clusters []string
		for _, c := range slices.Sorted(maps.Keys(other)) {
			if other[c] == string(mode) {
				clusters = append(clusters, c)
			}
		}
		switch where := strings.Join(clusters, ", "); {
		case len(clusters) > maxModeClusters:
			parts = append(parts, fmt.Sprintf("%s in %d clusters", mode, len(clusters)))
		case len(clusters) > 0:
			parts = append(parts, fmt.Sprintf("%s in %s", mode, where))
		}
	}
	return strings.Join(parts, "; ")
}

// maxModeClusters is the most clusters that a cell of a table names.
const maxModeClusters = 3
