package service

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

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

// actionsOf returns the validationActions of the bindings, with commas, and of each policy the actions of all its bindings.
func actionsOf(objects map[config.Key]config.Object) map[config.Key]string {
	taken := map[config.Key][]admissionregistrationv1.ValidationAction{}
	for key, o := range objects {
		if o.Binding != nil {
			for _, of := range []config.Key{key, o.PolicyOf()} {
				taken[of] = append(taken[of], o.Binding.Spec.ValidationActions...)
			}
		}
	}
	all := make(map[config.Key]string, len(taken))
	for key, actions := range taken {
		var words []string
		for _, action := range []admissionregistrationv1.ValidationAction{
			admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit,
		} {
			if slices.Contains(actions, action) {
				words = append(words, string(action))
			}
		}
		all[key] = strings.Join(words, ",")
	}
	return all
}

// deciding reports that hooks of an object are in shadow, and else the validationActions of a policy or a binding; nil for other objects.
func (m *meshState) deciding(key config.Key) *configv1.Condition {
	judged := key
	if object, ok := m.live.Objects[key]; ok && object.PolicyOf() != (config.Key{}) {
		judged = object.PolicyOf()
	}
	o := m.modes[judged]
	if o == nil || len(o.shadow) == 0 {
		actions := m.actions[key]
		if actions == "" {
			return nil
		}
		return condition(conditionDeciding, strings.Contains(actions, string(admissionregistrationv1.Deny)), actions,
			"the validationActions for a validation that is false: "+strings.ReplaceAll(actions, ",", ", "))
	}
	reason := "Shadow"
	if len(o.shadow) < o.hooks {
		reason = "PartlyShadow"
	}
	return condition(conditionDeciding, false, reason, fmt.Sprintf(
		"%d of %s in shadow: called, and they decide nothing: %s: `portcullis shadow report` has their verdicts",
		len(o.shadow), counted(o.hooks, "hook"), firstOf(o.shadow)))
}
