package match

import "slices"

// compiled is the result of one object. A snapshot takes it over from the last snapshot if it would come out the same. So a change costs the
// compilation of the changed objects alone. It is immutable, and holds nothing of the snapshots that it belonged to.
type compiled struct {
	digest, source string
	pending        []string
	routes         []identity // the binding of each hook
	hooks          []*Hook
	findings       []Finding
}

// identity distinguishes bindings by their content. The zero identity means no binding.
type identity struct{ name, source, digest string }

func (b *RouteBinding) identity() identity {
	if b == nil {
		return identity{}
	}
	return identity{b.Name, b.Source, b.Digest}
}

// says reports whether a binding, which may be nil, is known to have the content of i.
func (i identity) says(b *RouteBinding) bool {
	return b.identity() == i && (b == nil || b.Digest != "")
}

// known returns the result of o in the last snapshot, and reports its findings again; nil when the result may be another one now.
func (c *compiler) known(o Object) *compiled {
	if c.last == nil || o.Digest == "" {
		return nil
	}
	old := c.last.objects[o.key()]
	if old == nil || old.digest != o.Digest || old.source != o.Source || !slices.Equal(old.pending, o.Pending) {
		return nil
	}
	for i, h := range old.hooks {
		if !old.routes[i].says(c.routes.of(h.ID)) {
			return nil
		}
	}
	c.findings = append(c.findings, old.findings...)
	return old
}

// from returns the result of the object with its first hook at a position of the snapshot. Hooks that stood elsewhere
// belong to another snapshot still, and are copied.
func (m *compiled) from(first int) *compiled {
	if len(m.hooks) == 0 || m.hooks[0].ordinal == first {
		return m
	}
	moved := *m
	moved.hooks = make([]*Hook, len(m.hooks))
	for i, h := range m.hooks {
		hook := *h
		hook.ordinal = first + i
		moved.hooks[i] = &hook
	}
	return &moved
}
