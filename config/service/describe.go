package service

import (
	"context"
	"slices"

	"github.com/portcullis-mesh/portcullis/config"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// State is the configuration at one moment with the reports of the dispatchers and hosts about it. It is immutable.
type State struct{ mesh *meshState }

// State returns the state for a part of this process, which writes it where people look: there is no caller whose role counts.
func (s *Service) State(ctx context.Context) (State, error) {
	st, err := s.read(ctx)
	if err != nil {
		return State{}, err
	}
	m, err := s.gather(ctx, st)
	return State{m}, err
}

// Describe returns the conditions and findings of a document: those that Get returns of an object, and of a document without a
// version in force Accepted and Effective, both False.
func (s State) Describe(key config.Key) (conditions []*configv1.Condition, findings config.Problems) {
	m := s.mesh
	findings = slices.Concat(m.byKey[key], m.noHosts(key), m.entryDrift(key))
	if m.has(key) {
		return m.conditions(key, m.state.Records[key]), findings
	}
	accepted := m.accepted(key)
	if accepted.GetStatus() == "True" {
		accepted = condition(conditionAccepted, false, "NotListed", "no source has listed the document yet")
	}
	return []*configv1.Condition{accepted, condition(conditionEffective, false, accepted.GetReason(), "no version of it is in force")}, findings
}
