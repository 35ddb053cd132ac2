package lint

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

const (
	// CodeEntriesUnchecked is the code where there are too many hooks and clusters to look at the entries of each cluster.
	CodeEntriesUnchecked = "entries-unchecked"
	// MaxEntryHooks bounds the hooks whose entries are planned in one look, counted in each cluster. A hook whose rules name more than
	// combinationsOfAHook counts as several.
	MaxEntryHooks = 10_000
	// combinationsOfAHook is a hook's share when MaxEntryHooks hooks name as many combinations as a configuration may.
	combinationsOfAHook = config.MaxTotalCombinations / MaxEntryHooks
)

// EntryDangers finds entries that fail closed and bring writes that a cluster needs in kube-system to repair itself, though no hook of
// them selects kube-system: hooks that leave it out in different ways share an entry. The finding is about a hook of the entry that
// about selects, a fail-closed one if there is any. A hook has at most one. Clusters whose hooks are the same are looked at once.
func EntryDangers(s *match.Snapshot, clusters []string, about func(*match.Hook) bool) []match.Finding {
	return entryDangers(s, clusters, about, MaxEntryHooks)
}

func entryDangers(s *match.Snapshot, clusters []string, about func(*match.Hook) bool, most int) []match.Finding {
	c := entryChecker{about: about, shared: newShared(s.Hooks()), most: most, room: most, writes: workloads(metav1.NamespaceSystem)}
	var general []int // of the snapshot's hooks
	specific, looked := map[string][]int{}, false
	for i, h := range s.Hooks() {
		for _, cluster := range clustersOf(h) {
			specific[cluster] = append(specific[cluster], i)
		}
		if len(clustersOf(h)) == 0 {
			general = append(general, i)
		}
	}
	for _, cluster := range clusters {
		alike := len(specific[cluster]) == 0 && s.Bypass(cluster) == nil // as all others without hooks of their own
		if alike && looked {
			continue
		}
		looked = looked || alike
		var hooks []*match.Hook
		for _, i := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(general, specific[cluster])))) {
			hooks = append(hooks, s.Hooks()[i])
		}
		c.check(cluster, hooks, s.Bypass(cluster))
	}
	return c.result()
}

// entryChecker looks at the entries of one cluster after the other.
type entryChecker struct {
	about     func(*match.Hook) bool
	shared    *shared
	writes    []write
	most      int // hooks that are planned
	room      int // of these, hooks that may still be planned
	unchecked []string
	findings  []match.Finding
}

// check looks at the entries of a cluster that hooks serve.
func (c *entryChecker) check(cluster string, hooks []*match.Hook, bypass *match.Bypass) {
	if !slices.ContainsFunc(hooks, c.about) {
		return
	}
	counted := 0
	for _, h := range hooks {
		counted += max(1, match.Combinations(h.Rules())/combinationsOfAHook)
	}
	if counted > c.room {
		c.unchecked = append(c.unchecked, cluster)
		return
	}
	c.room -= counted
	for _, e := range registration.WiderEntries(hooks, bypass, metav1.NamespaceSystem) {
		i := slices.IndexFunc(c.writes, func(w write) bool { return c.brings(&e, &w) })
		about := slices.IndexFunc(e.Hooks, c.about)
		if i < 0 || about < 0 {
			continue
		}
		h := e.Hooks[about]
		f := warning(CodeSystem, h.Path(".namespaceSelector"), "the entry %s of cluster %s fails closed and brings writes of kube-system, though no hook "+
			"of it that fails closed selects them, for example: %s. The namespaceSelectors of these %d hooks, this one among them, have no part in common "+
			"that leaves kube-system out, so while the mesh is down the cluster cannot mend itself. Give each of the hooks the requirement %s NotIn (%s).",
			e.Name, cluster, c.writes[i].example(), len(e.Hooks), corev1.LabelMetadataName, metav1.NamespaceSystem)
		if !slices.ContainsFunc(c.findings, func(known match.Finding) bool { return known.Path == f.Path }) {
			c.findings = append(c.findings, f)
		}
	}
}

// brings reports whether an entry brings a write. Of its conditions those count that all of its hooks share.
func (c *entryChecker) brings(e *registration.WiderEntry, w *write) bool {
	return e.Brings(admissionregistrationv1.OperationType(w.operation), w.group, w.version, w.resource) &&
		!slices.ContainsFunc(e.Hooks, func(h *match.Hook) bool { return c.shared.keepsOut(h, w) })
}

func (c *entryChecker) result() []match.Finding {
	if len(c.unchecked) == 0 {
		return c.findings
	}
	return append(c.findings, match.Finding{
		Severity: match.SeverityInfo, Code: CodeEntriesUnchecked, Path: "Cluster/" + c.unchecked[0],
		Message: fmt.Sprintf("whether entries bring more of kube-system than their hooks select was not looked at for %s, since one look is at %d "+
			"hooks: `portcullis cluster register` looks at one cluster", listed(c.unchecked), c.most),
	})
}

// declared are the names of the clusters that have a document, in the order of the objects.
func declared(objects []config.Object) []string {
	var names []string
	for i := range objects {
		if objects[i].Cluster != nil {
			names = append(names, objects[i].Name)
		}
	}
	return names
}
