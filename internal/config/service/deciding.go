package service

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// modes has the hooks of an object.
type modes struct {
	hooks  int
	shadow []string // names of those in shadow
}

// modesOf returns the objects with hooks in shadow: webhook configurations, and HookRoutes of such hooks.
func modesOf(s *match.Snapshot) map[config.Key]*modes {
	all := map[config.Key]*modes{}
	if s == nil {
		return all
	}
	count := func(key config.Key, h *match.Hook) {
		m := all[key]
		if m == nil {
			m = &modes{}
			all[key] = m
		}
		if m.hooks++; h.Route.Shadow {
			m.shadow = append(m.shadow, h.ID.Name)
		}
	}
	for _, h := range s.Hooks() {
		count(config.KeyOf(h), h)
		for _, route := range h.RoutedBy {
			count(config.Key{Kind: kinds.HookRouteKind, Name: route}, h)
		}
	}
	return all
}

// deciding reports that hooks of an object are in shadow; nil if none is.
func (m *meshState) deciding(key config.Key) *configv1.Condition {
	o := m.modes[key]
	if o == nil || len(o.shadow) == 0 {
		return nil
	}
	reason := "Shadow"
	if len(o.shadow) < o.hooks {
		reason = "PartlyShadow"
	}
	return condition(conditionDeciding, false, reason, fmt.Sprintf(
		"%d of %s in shadow: called, and they decide nothing: %s: `portcullis shadow report` has what they would have done",
		len(o.shadow), counted(o.hooks, "hook"), firstOf(o.shadow)))
}
