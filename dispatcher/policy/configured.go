package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// MaxConfigured bounds the params of one kind that the configuration has for a cluster: as many as a selection in a cluster may have.
const MaxConfigured = 1000

// ParamSet are params of one kind in a document.
type ParamSet struct {
	// Clusters are the clusters whose policies read them. Empty means all.
	Clusters []string
	// Objects are the params. They must not change afterwards, and the pointer of each identifies it.
	Objects []param
}

// Params are the params of one kind in the configuration. A policy in a cluster that has any reads no others. It is immutable.
type Params struct {
	everywhere *shelf            // nil without one
	own        map[string]*shelf // of the clusters that documents name
}

// ParamConflict is a contradiction in the params of a cluster: each policy that reads them there fails.
type ParamConflict struct {
	// Cluster is a cluster that documents name; empty for all clusters.
	Cluster string
	// Objects contradict each other.
	Objects [2]param
	// Reason is the rule that they break.
	Reason string
}

// shelf are the params of one or of all clusters, in the order in which an API server lists them.
type shelf struct {
	items    []paramItem
	conflict error
}

type paramItem struct {
	namespace, name string
	labels          labels.Set
	param
}

func (i *paramItem) compare(other *paramItem) int {
	return cmp.Or(cmp.Compare(i.namespace, other.namespace), cmp.Compare(i.name, other.name))
}

// NewParams returns the params of one kind, and their contradictions: at most one for all clusters, and one for each cluster that a set names.
func NewParams(sets []ParamSet) (*Params, []ParamConflict) {
	everywhere, p := &shelf{}, &Params{own: map[string]*shelf{}}
	for _, set := range sets {
		for _, o := range set.Objects {
			item := paramItem{o.GetNamespace(), o.GetName(), o.GetLabels(), o}
			if len(set.Clusters) == 0 {
				everywhere.items = append(everywhere.items, item)
			}
			for _, cluster := range set.Clusters {
				if p.own[cluster] == nil {
					p.own[cluster] = &shelf{}
				}
				p.own[cluster].items = append(p.own[cluster].items, item)
			}
		}
	}
	conflicts := everywhere.arrange("", &shelf{})
	if len(everywhere.items) > 0 {
		p.everywhere = everywhere
	}
	for _, cluster := range slices.Sorted(maps.Keys(p.own)) {
		conflicts = append(conflicts, p.own[cluster].arrange(cluster, everywhere)...)
	}
	return p, conflicts
}

// arrange orders the params of a cluster, and looks for a contradiction in them and with the params of all clusters.
func (s *shelf) arrange(cluster string, everywhere *shelf) []ParamConflict {
	slices.SortStableFunc(s.items, func(a, b paramItem) int { return a.compare(&b) })
	a, b, reason := s.contradiction(everywhere)
	if reason == "" {
		return nil
	}
	s.conflict = fmt.Errorf("the configuration contradicts itself: %s", reason)
	return []ParamConflict{{Cluster: cluster, Objects: [2]param{a.param, b.param}, Reason: reason}}
}

func (s *shelf) contradiction(everywhere *shelf) (a, b *paramItem, reason string) {
	if len(s.items) == 0 {
		return nil, nil, ""
	}
	first, last := &s.items[0], &s.items[len(s.items)-1]
	for _, other := range []*paramItem{last, everywhere.first()} {
		if other != nil && (first.namespace == "") != (other.namespace == "") {
			return first, other, "one object of a kind has a namespace and another has none"
		}
	}
	if n := len(s.items) + len(everywhere.items); n > MaxConfigured {
		return cmp.Or(everywhere.first(), first), last, fmt.Sprintf("a cluster has %d objects of one kind, and at most %d", n, MaxConfigured)
	}
	for i := range s.items {
		item := &s.items[i]
		if i > 0 && s.items[i-1].compare(item) == 0 {
			return &s.items[i-1], item, "an object stands there twice"
		}
		if at, found := everywhere.find(item.namespace, item.name); found {
			return &everywhere.items[at], item, "an object stands there twice"
		}
	}
	return nil, nil, ""
}

func (s *shelf) first() *paramItem {
	if len(s.items) == 0 {
		return nil
	}
	return &s.items[0]
}

// find returns the place of a param, or where it would be.
func (s *shelf) find(namespace, name string) (at int, found bool) {
	return slices.BinarySearchFunc(s.items, paramItem{namespace: namespace, name: name}, func(a, b paramItem) int { return a.compare(&b) })
}

// in returns the params of a cluster; none if it has none, and its policies read the objects of the cluster.
func (p *Params) in(cluster string) (all []*shelf, err error) {
	if p == nil {
		return nil, nil
	}
	for _, s := range []*shelf{p.everywhere, p.own[cluster]} {
		if s != nil {
			all, err = append(all, s), cmp.Or(err, s.conflict)
		}
	}
	return all, err
}

// selected are the params that a selection means, in the order in which an API server lists them.
func selected(shelves []*shelf, s match.Selection, by labels.Selector) (found []param) {
	for _, shelf := range shelves {
		at, named := shelf.find(s.Namespace, s.Name)
		if s.Name != "" {
			if named {
				found = append(found, shelf.items[at].param)
			}
			continue
		}
		for i := range shelf.items[at:] {
			item := &shelf.items[at+i]
			if item.namespace != s.Namespace {
				break
			}
			if by.Matches(item.labels) {
				found = append(found, item.param)
			}
		}
	}
	if len(shelves) > 1 {
		slices.SortFunc(found, func(a, b param) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
	return found
}

// WithParams returns the policy with the params of its kind in the configuration.
func (d *Definition) WithParams(p *Params) *Definition {
	other := *d
	other.configured = p
	return &other
}

// WithParams returns the policy with the params of its kind in the configuration.
func (d *MutatingDefinition) WithParams(p *Params) *MutatingDefinition {
	other := *d
	other.configured = p
	return &other
}
