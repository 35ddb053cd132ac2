package registration

import (
	"maps"
	"slices"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// maxGroups bounds the groups of fail-closed hooks that have entries of their own; if there are more, all hooks are one.
const maxGroups = 8

// groups divides hooks by the resources that they cover, in any group and version, so that each request is covered by hooks of one group at
// most: then each group can have selectors of its own. Groups of the same selectors are one.
func (p *planner) groups(hooks []*match.Hook) [][]*match.Hook {
	first := selection(hooks[:min(len(hooks), 1)])
	if p.most < config.MaxCombinations || !slices.ContainsFunc(hooks, func(h *match.Hook) bool { return selection([]*match.Hook{h}) != first }) {
		return [][]*match.Hook{hooks}
	}
	var groups [][]*match.Hook
	at := map[[2]string]int{}
	for _, group := range p.apart(hooks) {
		text := selection(group)
		if i, ok := at[text]; ok {
			groups[i] = append(groups[i], group...)
			continue
		}
		if at[text] = len(groups); len(groups) == maxGroups {
			return [][]*match.Hook{hooks}
		}
		groups = append(groups, group)
	}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b *match.Hook) int { return a.Ordinal() - b.Ordinal() })
	}
	return groups
}

// selection is the same for hooks whose entries have the same selectors.
func selection(hooks []*match.Hook) [2]string {
	namespaces, _ := canonical(namespacesOf(hooks))
	objects, _ := canonical(objectSelector(hooks))
	return [2]string{namespaces, objects}
}

// apart groups hooks so that no two groups have a resource in common, in the order of the first hook of each.
func (p *planner) apart(hooks []*match.Hook) [][]*match.Hook {
	owner, joined := map[atom]int{}, newJoined(len(hooks))
	for i, h := range hooks {
		for _, a := range p.reach[h] {
			resource := a.blank(shape{group: true, version: true})
			if first, ok := owner[resource]; ok {
				joined.join(first, i)
			} else {
				owner[resource] = i
			}
		}
	}
	set, seen := newAtomSet(slices.Collect(maps.Keys(owner))), map[place]bool{}
	for a, i := range owner {
		for _, b := range set.meeting(a, seen) {
			joined.join(owner[b], i)
		}
	}
	var lists [][]*match.Hook
	at := map[int]int{}
	for i, h := range hooks {
		root := joined.root(i)
		if _, ok := at[root]; !ok {
			at[root], lists = len(lists), append(lists, nil)
		}
		lists[at[root]] = append(lists[at[root]], h)
	}
	return lists
}

// meeting are atoms of the set that overlap with a. Of a place that was seen it has one, with which the others overlapped then.
func (s atomSet) meeting(a atom, seen map[place]bool) []atom {
	var all []atom
	for _, as := range s.shapes {
		if wider := a.blank(as); s.all[wider] && wider.covers(a) {
			all = append(all, wider)
		}
	}
	for _, at := range s.places(a) {
		list := s.under(at)
		if seen[at] {
			list = list[:min(len(list), 1)]
		}
		seen[at] = true
		all = append(all, list...)
	}
	return all
}

// joined are numbers, of which some belong together.
type joined []int

func newJoined(n int) joined {
	j := make(joined, n)
	for i := range j {
		j[i] = i
	}
	return j
}

func (j joined) root(i int) int {
	for j[i] != i {
		j[i] = j[j[i]]
		i = j[i]
	}
	return i
}

func (j joined) join(a, b int) { j[j.root(b)] = j.root(a) }
