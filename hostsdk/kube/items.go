package kube

import "encoding/json"

// origins returns, for each item of to, the index of its origin in from: equal items at the front and at the end first, then equal items,
// then items of the same key, then items without a name at the same position; -1 for a new item. Each item of from is taken once.
func origins(from, to []*document) []int {
	m := matcher{origin: make([]int, len(to)), taken: make([]bool, len(from))}
	for j := range m.origin {
		m.origin[j] = -1
	}
	front := 0
	for front < min(len(from), len(to)) && equal(from[front], to[front]) {
		m.take(front, front)
		front++
	}
	for i, j := len(from)-1, len(to)-1; min(i, j) >= front && equal(from[i], to[j]); i, j = i-1, j-1 {
		m.take(i, j)
	}
	m.by(from, to, whole)
	m.by(from, to, key)
	for j, item := range to {
		if m.origin[j] < 0 && j < len(from) && !m.taken[j] && !named(item) {
			m.take(j, j)
		}
	}
	return m.origin
}

// matcher collects which items belong together.
type matcher struct {
	origin []int  // by index in to
	taken  []bool // by index in from
}

func (m *matcher) take(i, j int) { m.origin[j], m.taken[i] = i, true }

// by matches items for which identify returns the same: at the same position if possible, else in order.
func (m *matcher) by(from, to []*document, identify func(item *document) string) {
	waiting := map[string][]int{}
	ids := make([]string, len(from))
	for i, item := range from {
		if !m.taken[i] {
			ids[i] = identify(item)
			waiting[ids[i]] = append(waiting[ids[i]], i)
		}
	}
	wanted := make([]string, len(to))
	for j, item := range to {
		if m.origin[j] < 0 {
			wanted[j] = identify(item)
		}
		if id := wanted[j]; id != "" && j < len(from) && !m.taken[j] && ids[j] == id {
			m.take(j, j)
		}
	}
	for j, id := range wanted {
		if id == "" || m.origin[j] >= 0 {
			continue
		}
		for _, i := range waiting[id] {
			waiting[id] = waiting[id][1:]
			if !m.taken[i] {
				m.take(i, j)
				break
			}
		}
	}
}

// whole identifies an item by all that it holds.
func whole(item *document) string {
	text, err := json.Marshal(item)
	if err != nil { // It is JSON.
		return ""
	}
	return string(text)
}

// key identifies an item by the first of the members by which Kubernetes tells items of its lists apart (the merge keys
// in k8s.io/api) that is not empty; empty when it has none.
func key(item *document) string {
	members := item.object()
	for _, member := range [...]string{
		"name", "mountPath", "devicePath", "containerPort", "port", "key", "ip", "topologyKey", "uid", "type",
	} {
		if value := members[member]; value != nil && !value.isEmptyText() {
			return member + "=" + whole(value)
		}
	}
	return ""
}

// named reports whether an item has a name: another name is then another item.
func named(item *document) bool {
	name := item.object()["name"]
	return name != nil && !name.isEmptyText()
}
