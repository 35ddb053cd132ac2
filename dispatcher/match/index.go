package match

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// maxRuleEntries bounds how many entries of the index one rule may take, over all operations, stages and clusters. A rule that lists more is
	// filed under every group instead, then under every resource, then for every cluster. Hooks that the index finds are checked exactly, so that
	// costs time for such requests only.
	maxRuleEntries = 16 << 10
	// maxEntries bounds the entries of all rules, of some 300 bytes each. If there are more, the bound of one rule is lowered until they
	// fit, or each rule takes as few as it can.
	maxEntries = 256 << 10
)

// index finds hooks by the resources and operations of their rules. Operations and clusters choose a table; group, resource and subresource, each by
// name or by wildcard, choose the hooks in it. Versions and scope stay to be checked, and so does the cluster. A request whose resource has
// equivalents looks for these too, among the hooks with matchPolicy Equivalent only.
type index struct {
	tables  map[tableKey]*table
	entries int // that were filed, each once for each time it was
}

// tableKey chooses a table. cluster is empty for hooks that see all clusters.
type tableKey struct {
	cluster   string
	stage     admissionv1.Stage
	operation operation
}

// operation is an operation as a table key. Rules that name every operation are filed under each, so that a request
// looks into one.
type operation uint8

const (
	operationCreate operation = iota
	operationUpdate
	operationDelete
	operationConnect
	operationOther // an operation that this version of Kubernetes does not know
	operations
)

func operationOf(name string) operation {
	switch name {
	case "CREATE":
		return operationCreate
	case "UPDATE":
		return operationUpdate
	case "DELETE":
		return operationDelete
	case "CONNECT":
		return operationConnect
	}
	return operationOther
}

// table holds the hooks of one stage and operation.
type table struct {
	all ruleTable
	// equivalent are the hooks of all with matchPolicy Equivalent that a request could reach by an equivalent resource alone. A rule for all groups
	// and resources needs no entry: every name finds it.
	equivalent ruleTable
	// others are the hooks in equivalent, in order.
	others []*Hook
}

// ruleTable files hooks by the resources of their rules.
type ruleTable struct {
	// shapes are the combinations of wildcards that occur, so that a request looks only for those.
	shapes []shape
	hooks  map[ruleKey][]*Hook
}

// ruleKey is the key of a rule; a field that it leaves open holds the wildcard. "No subresource" is an empty name.
type ruleKey struct {
	group, resource, subresource string
}

// shape marks the fields of a ruleKey that are wildcards.
type shape struct {
	group, resource, subresource bool
}

func (k ruleKey) shape() shape {
	return shape{group: k.group == wildcard, resource: k.resource == wildcard, subresource: k.subresource == wildcard}
}

func (k ruleKey) blank(s shape) ruleKey {
	if s.group {
		k.group = wildcard
	}
	if s.resource {
		k.resource = wildcard
	}
	if s.subresource {
		k.subresource = wildcard
	}
	return k
}

// newIndex files hooks, which are in order.
func newIndex(hooks []*Hook) index {
	x, most := index{tables: map[tableKey]*table{}}, maxRuleEntries
	for most > 1 && entriesOf(hooks, most) > maxEntries {
		most /= 4
	}
	for _, h := range hooks {
		for i := range h.rules {
			x.file(filingOf(h, &h.rules[i], most))
		}
	}
	return x
}

// entriesOf is how many entries hooks take, if a rule takes at most so many, by the lengths of lists alone.
func entriesOf(hooks []*Hook, most int) int {
	n := 0
	for _, h := range hooks {
		for i := range h.rules {
			f := filingOf(h, &h.rules[i], most)
			n += f.entries()
		}
	}
	return n
}

// filing is where a rule of a hook is filed: under each combination.
type filing struct {
	hook              *Hook
	groups, resources []string
	operations        []operation
	stages            []admissionv1.Stage
	clusters          []string
}

// filingOf is the most exact filing of at most so many entries; if there is none, the least exact.
func filingOf(h *Hook, rule *admissionregistrationv1.RuleWithOperations, most int) filing {
	f := filing{hook: h, groups: rule.APIGroups, resources: rule.Resources, stages: h.stages(), clusters: h.clusters()}
	for o := range operations {
		if filedUnder(rule.Operations, o) {
			f.operations = append(f.operations, o)
		}
	}
	every := []string{wildcard}
	if f.entries() > most && len(f.groups) > 1 {
		f.groups = every
	}
	if f.entries() > most && len(f.resources) > 1 {
		f.resources = []string{wildcard + "/" + wildcard} // also those without a subresource
	}
	if f.entries() > most && len(f.clusters) > 1 {
		f.clusters = []string{""}
	}
	return f
}

func (f *filing) entries() int {
	return len(f.groups) * len(f.resources) * len(f.operations) * len(f.stages) * len(f.clusters)
}

func (x *index) file(f filing) {
	keys := f.keys()
	for _, cluster := range f.clusters {
		for _, stage := range f.stages {
			for _, o := range f.operations {
				x.table(tableKey{cluster, stage, o}).add(f.hook, keys)
				x.entries += len(keys)
			}
		}
	}
}

func (x *index) table(k tableKey) *table {
	t := x.tables[k]
	if t == nil {
		t = &table{all: ruleTable{hooks: map[ruleKey][]*Hook{}}, equivalent: ruleTable{hooks: map[ruleKey][]*Hook{}}}
		x.tables[k] = t
	}
	return t
}

func (t *table) add(h *Hook, keys []ruleKey) {
	for _, k := range keys {
		t.all.add(h, k)
		if h.MatchPolicy == admissionregistrationv1.Equivalent && (k.group != wildcard || k.resource != wildcard) {
			t.equivalent.add(h, k)
			t.others = appendNew(t.others, h)
		}
	}
}

func (t *ruleTable) add(h *Hook, k ruleKey) {
	if s := k.shape(); !slices.Contains(t.shapes, s) {
		t.shapes = append(t.shapes, s)
	}
	t.hooks[k] = appendNew(t.hooks[k], h)
}

// appendNew appends h unless it is there. Hooks are filed in order: if h is there, it is the last.
func appendNew(list []*Hook, h *Hook) []*Hook {
	if len(list) > 0 && list[len(list)-1] == h {
		return list
	}
	return append(list, h)
}

// clusters are the table keys for the clusters whose reviews the hook sees.
func (h *Hook) clusters() []string {
	switch {
	case h.ID.Scope == "" && len(h.Route.Clusters) == 0:
		return []string{""}
	case h.ID.Scope == "":
		return h.Route.Clusters
	case h.Serves(h.ID.Scope):
		return []string{h.ID.Scope}
	}
	return nil
}

// stages are the stages whose reviews may call the hook.
func (h *Hook) stages() []admissionv1.Stage {
	if h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		return []admissionv1.Stage{h.EntryStage(), admissionv1.Stage_STAGE_REINVOKE}
	}
	return []admissionv1.Stage{h.EntryStage()}
}

func filedUnder(names []admissionregistrationv1.OperationType, o operation) bool {
	return slices.ContainsFunc(names, func(n admissionregistrationv1.OperationType) bool {
		return n == admissionregistrationv1.OperationAll || operationOf(string(n)) == o
	})
}

// keys are every group with every resource.
func (f *filing) keys() []ruleKey {
	keys := make([]ruleKey, 0, len(f.groups)*len(f.resources))
	for _, g := range f.groups {
		for _, r := range f.resources {
			resource, subresource, _ := strings.Cut(r, "/")
			keys = append(keys, ruleKey{group: g, resource: resource, subresource: subresource})
		}
	}
	return keys
}

// lookup returns at least the hooks of the stage whose rules cover the request, in order, each once. The slice belongs
// to the caller. The cost is a constant number of map probes, and the hooks found.
func (x *index) lookup(cluster string, stage admissionv1.Stage, a *Attributes) []*Hook {
	var buffer [16][]*Hook
	lists := buffer[:0]
	lists = x.collect(lists, tableKey{"", stage, a.operation}, a)
	if cluster != "" {
		lists = x.collect(lists, tableKey{cluster, stage, a.operation}, a)
	}
	return merge(lists)
}

// collect appends the lists of a table that the request leads to.
func (x *index) collect(lists [][]*Hook, in tableKey, a *Attributes) [][]*Hook {
	t := x.tables[in]
	if t == nil {
		return lists
	}
	lists = t.all.collect(lists, a.key(a.requested.Resource))
	if len(t.others) == 0 {
		return lists
	}
	equivalents, err := a.versions()
	if err != nil {
		return append(lists, t.others) // any of them may be reached
	}
	for i := range equivalents {
		if a.isNewName(equivalents, i) {
			lists = t.equivalent.collect(lists, a.key(equivalents[i].Resource))
		}
	}
	return lists
}

// isNewName reports whether the group and name of equivalents[i] differ from the requested resource and from all equivalents before: the index knows
// no versions.
func (r *request) isNewName(equivalents []conversion.ResourceKind, i int) bool {
	name := equivalents[i].Resource.GroupResource()
	return name != r.requested.Resource.GroupResource() && !slices.ContainsFunc(equivalents[:i], func(w conversion.ResourceKind) bool {
		return w.Resource.GroupResource() == name
	})
}

func (t *ruleTable) collect(lists [][]*Hook, k ruleKey) [][]*Hook {
	for _, s := range t.shapes {
		if list := t.hooks[k.blank(s)]; len(list) > 0 {
			lists = append(lists, list)
		}
	}
	return lists
}

func (r *request) key(on schema.GroupVersionResource) ruleKey {
	return ruleKey{group: on.Group, resource: on.Resource, subresource: r.req.GetSubResource()}
}

// merge returns the hooks of all lists in order, each once.
func merge(lists [][]*Hook) []*Hook {
	if len(lists) == 0 {
		return nil
	}
	merged := slices.Concat(lists...)
	if len(lists) == 1 {
		return merged
	}
	slices.SortFunc(merged, func(a, b *Hook) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return slices.Compact(merged)
}
