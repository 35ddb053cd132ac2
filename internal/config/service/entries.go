package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// CodeEntryDrift is the code of a finding about a Cluster: its entries were generated from another configuration than the one
// in force.
const CodeEntryDrift = "entry-drift"

// CodeEntriesUnseen is the code of a finding about a Cluster whose entries the mesh does not keep: no review came by them lately, so they may
// be missing, or older than the hooks.
const CodeEntriesUnseen = "entries-unseen"

// codeRegisterAgain is the code of a finding of an apply: the entries of clusters have to be made again, which the mesh does not do.
const codeRegisterAgain = "register-again"

// CodeEntriesBehind is the code of a finding about a Cluster with spec.registration: the mesh has not yet written its entries for
// the configuration in force.
const CodeEntriesBehind = "entries-behind"

// CodeEntriesNotKept is the code of a finding about such a Cluster: the mesh could not read or write its entries.
const CodeEntriesNotKept = "entries-not-kept"

// CodeEntriesWider is the code of a finding about such a Cluster: its API server does not keep the conditions of the entries.
const CodeEntriesWider = "entries-wider"

// entriesWider returns the findings about the entries of a cluster that bring more requests than planned, each once.
func (m *meshState) entriesWider(key config.Key) (found config.Problems) {
	for _, d := range m.dispatchers {
		for _, w := range d.GetEntriesWider() {
			finding := config.Problem{Severity: match.SeverityWarning, Code: CodeEntriesWider, Key: key, Message: w.GetMessage()}
			if w.GetCluster() == key.Name && !slices.Contains(found, finding) {
				found = append(found, finding)
			}
		}
	}
	return found
}

// entriesBehind returns the finding about the entries of a cluster that the mesh keeps; none if each dispatcher sees that they are those
// of its configuration.
func (m *meshState) entriesBehind(key config.Key) config.Problems {
	for _, d := range m.dispatchers {
		for _, b := range allBehind(d) {
			if b.GetCluster() == key.Name {
				code := CodeEntriesBehind
				if b.GetFailed() {
					code = CodeEntriesNotKept
				}
				return config.Problems{{
					Severity: match.SeverityWarning, Code: code, Key: key,
					Message: fmt.Sprintf("its entries, which the mesh keeps, are not known to match the configuration in force: %s (seen by %s)",
						b.GetMessage(), d.GetStatus().GetDispatcherId()),
				}}
			}
		}
	}
	return nil
}

// allBehind are the clusters whose entries a dispatcher reports to be behind. Of those that it only names, each hook may lack entries.
func allBehind(d *configv1.DispatcherReport) []*configv1.EntriesBehind {
	all := slices.Clip(d.GetEntriesBehind())
	failed := len(all) > 0 && all[len(all)-1].GetFailed() // so have those behind it
	for _, cluster := range d.GetEntriesBehindMore() {
		all = append(all, &configv1.EntriesBehind{
			Cluster: cluster, Message: "more clusters are behind than the report explains", LackingMore: 1, Failed: failed,
		})
	}
	return all
}

// withoutEntries is why the entries of a cluster that the mesh keeps may not bring the requests of all hooks of a webhook configuration; empty if
// they do. A dispatcher that has not read the entries yet counts only where none has.
func (m *meshState) withoutEntries(key config.Key) string {
	if !strings.HasSuffix(key.Kind, "WebhookConfiguration") {
		return ""
	}
	var clusters []string
	why, unread := "", map[string]int{}
	for _, d := range m.dispatchers {
		for _, b := range allBehind(d) {
			cluster := b.GetCluster()
			if b.GetUnread() {
				unread[cluster]++
			}
			lacking := slices.Contains(b.GetLacking(), key.String()) ||
				(b.GetLackingMore() > 0 || unread[cluster] == len(m.dispatchers)) && m.serves(key, cluster)
			if lacking && !slices.Contains(clusters, cluster) {
				clusters, why = append(clusters, cluster), cmp.Or(why, b.GetMessage())
			}
		}
	}
	if len(clusters) == 0 {
		return ""
	}
	return fmt.Sprintf("the entries that the mesh keeps may not bring all of its requests yet in %s: %s", firstOf(clusters), why)
}

// serves reports whether a hook of a webhook configuration is for a cluster, or it is not known here yet.
func (m *meshState) serves(key config.Key, cluster string) bool {
	s := m.live.Snapshot()
	return s == nil || slices.ContainsFunc(s.Hooks(), func(h *match.Hook) bool { return config.KeyOf(h) == key && h.Serves(cluster) })
}

// registered is the condition of a Cluster whose entries the mesh keeps; nil for other objects.
func (m *meshState) registered(key config.Key) *configv1.Condition {
	o := m.document(key)
	switch {
	case o.Cluster == nil || o.Cluster.Spec.Registration == nil:
		return nil
	case len(m.dispatchers) == 0:
		return &configv1.Condition{Type: conditionRegistered, Status: "Unknown", Reason: "NoDispatcher", Message: "no dispatcher says that it lives"}
	}
	if behind := m.entriesBehind(key); len(behind) > 0 {
		reason := "EntriesBehind"
		if behind[0].Code == CodeEntriesNotKept {
			reason = "EntriesNotKept"
		}
		return condition(conditionRegistered, false, reason, behind[0].Message)
	}
	return condition(conditionRegistered, true, "EntriesWritten", "")
}

// entryDrift returns the finding about the entries of a cluster that the dispatchers have seen; none if they match.
func (m *meshState) entryDrift(key config.Key) config.Problems {
	var first *configv1.EntryDrift
	var on []string
	for _, d := range m.dispatchers {
		for _, drift := range d.GetEntryDrifts() {
			if drift.GetCluster() == key.Name {
				on, first = append(on, d.GetStatus().GetDispatcherId()), cmp.Or(first, drift)
			}
		}
	}
	if first == nil {
		return nil
	}
	remedy := fmt.Sprintf("run `portcullis cluster register %s` and apply its output", key.Name)
	if c := m.objects[key].Cluster; c != nil && c.Spec.Registration != nil {
		remedy = "the mesh writes them within seconds"
	}
	return config.Problems{{
		Severity: match.SeverityWarning, Code: CodeEntryDrift, Key: key,
		Message: fmt.Sprintf("its API servers call the mesh by entries that were made from another configuration: %s (seen by %s); %s",
			describeDrift(first), firstOf(on), remedy),
	}}
}

// entriesUnseen returns the finding about a cluster by whose entries no dispatcher has seen a review.
func (m *meshState) entriesUnseen(key config.Key) config.Problems {
	if len(m.dispatchers) == 0 {
		return nil
	}
	for _, d := range m.dispatchers {
		if !slices.Contains(d.GetEntriesUnseen(), key.Name) {
			return nil
		}
	}
	return config.Problems{{
		Severity: match.SeverityInfo, Code: CodeEntriesUnseen, Key: key,
		Message: fmt.Sprintf("it has hooks, and no review has come by its entries in the last 10 minutes: `portcullis cluster register %s --diff` "+
			"shows whether they are there and of these hooks", key.Name),
	}}
}

// noteEntries adds a note that names the clusters whose entries lack hooks that the apply adds or changes, and that the mesh does not write.
func (plan *applyPlan) noteEntries(
	before map[match.HookID]*match.Hook, all []config.Object, snapshot *match.Snapshot, touched map[config.Key]bool,
) {
	changed := slices.DeleteFunc(slices.Clone(snapshot.Hooks()), func(h *match.Hook) bool { return !touched[config.KeyOf(h)] })
	var clusters []string
	for i := range all {
		c, name := all[i].Cluster, all[i].Name
		if c != nil && c.Spec.Registration == nil && slices.ContainsFunc(changed, func(h *match.Hook) bool {
			was := before[h.ID]
			return h.Serves(name) && (was == nil || !was.Serves(name) || !h.BroughtAs(was))
		}) {
			clusters = append(clusters, name)
		}
	}
	if len(clusters) == 0 {
		return
	}
	slices.Sort(clusters)
	plan.notes = append(plan.notes, config.Problem{
		Severity: match.SeverityInfo, Code: codeRegisterAgain,
		Message: fmt.Sprintf("the mesh does not keep the entries of %s: their API servers send it no requests of new or changed hooks until you run "+
			"`portcullis cluster register NAME --apply`, or `join`, for each with its flags of before", firstOf(clusters)),
	})
}

func describeDrift(d *configv1.EntryDrift) string {
	var parts []string
	if unplanned := d.GetUnplanned(); len(unplanned) > 0 {
		names := make([]string, len(unplanned))
		for i, h := range unplanned {
			names[i] = fmt.Sprintf("hook %q of %s", h.GetHook(), h.GetObject())
		}
		more := ""
		if d.GetUnplannedMore() > 0 {
			more = fmt.Sprintf(" and %d more", d.GetUnplannedMore())
		}
		parts = append(parts, "new or changed since: "+strings.Join(names, ", ")+more)
	}
	if d.GetGone() > 0 {
		parts = append(parts, counted(int(d.GetGone()), "hook")+" changed or gone")
	}
	if d.GetBypass() {
		parts = append(parts, "its bypass is new or changed since")
	}
	return strings.Join(parts, "; ")
}
