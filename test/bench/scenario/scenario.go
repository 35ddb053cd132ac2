// Package scenario describes a load: the number of hooks, their hosts, their behaviour, and the size of the Pod, and
// makes the same bytes and the same configuration out of it for every contender.
package scenario

import (
	"fmt"
	"strings"
	"time"
)

// Stage is which hooks are asked.
type Stage string

// The stages.
const (
	Validate Stage = "validate"
	Mutate   Stage = "mutate"
)

// The sizes of Pods, in bytes.
const (
	Small  = 2_000
	Medium = 20_000
	Large  = 1_000_000
)

// Scenario is one combination. It is comparable, and a key of results.
type Scenario struct {
	// Stage is which hooks are asked.
	Stage Stage `json:"stage"`
	// Hooks is how many hooks match.
	Hooks int `json:"hooks"`
	// Hosts is how many programs serve them, in equal parts: as many as Hooks, or one.
	Hosts int `json:"hosts"`
	// Bytes is the size of the Pod as JSON.
	Bytes int `json:"bytes"`
	// Configured is how many hooks are configured in all; 0 is Hooks. The others match no review of the run, and nobody
	// serves them.
	Configured int `json:"configured,omitempty"`
	// Patching is how many of the mutating hooks, the first ones, set a label of their own.
	Patching int `json:"patching,omitempty"`
	// Takes is how long a hook waits before it answers; whether the call is still wanted, it does not ask.
	Takes time.Duration `json:"takes,omitempty"`
	// Replicas is how many hosts serve each hook, in the place of one; 0 is one.
	Replicas int `json:"replicas,omitempty"`
	// OneTakes is how long a hook waits in the first of its replicas; 0 is Takes.
	OneTakes time.Duration `json:"oneTakes,omitempty"`
	// Speculate is spec.speculate of the hooks' route: calls before earlier mutating hooks have answered.
	Speculate bool `json:"speculate,omitempty"`
	// Hedge is the hedging of the hooks' route: calls that have not answered go to a second replica too.
	Hedge bool `json:"hedge,omitempty"`
	// Checks tells that each hook checks the images of the Pod, in the place of a look at nothing.
	Checks bool `json:"checks,omitempty"`
	// Bindings is how many bindings each policy has, where policies are in the place of hooks; 0 is one.
	Bindings int `json:"bindings,omitempty"`
	// Language is the language of the program that serves the hook, in a process of its own; empty is this one.
	Language string `json:"language,omitempty"`
	// Deleting tells that the Pod is deleted, and not created: the policy of the examples does not look at it then.
	Deleting bool `json:"deleting,omitempty"`
}

// String names the scenario, as "validate/2kB/8 hooks/1 host", and then its unusual settings.
func (s Scenario) String() string {
	name := []string{string(s.Stage), s.Size(), plural(s.Hooks, "hook"), plural(s.Hosts, "host")}
	for _, x := range []struct {
		is   bool
		text string
	}{
		{s.Configured > 0, fmt.Sprintf("%d configured", s.Configured)},
		{s.Patching > 0, fmt.Sprintf("%d patching", s.Patching)},
		{s.Takes > 0, s.Takes.String()},
		{s.Replicas > 0, plural(s.Replicas, "replica")},
		{s.OneTakes > 0, "one " + s.OneTakes.String()},
		{s.Speculate, "speculate"},
		{s.Hedge, "hedge"},
		{s.Checks, "checks"},
		{s.Bindings > 0, plural(s.Bindings, "binding")},
		{s.Language != "", s.Language},
		{s.Deleting, "delete"},
	} {
		if x.is {
			name = append(name, x.text)
		}
	}
	return strings.Join(name, "/")
}

// Size is the size of the Pod for people.
func (s Scenario) Size() string {
	if s.Bytes >= Large {
		return fmt.Sprintf("%dMB", s.Bytes/Large)
	}
	return fmt.Sprintf("%dkB", s.Bytes/1000)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Hook is the name of a hook, by its number.
func Hook(i int) string { return fmt.Sprintf("hook-%02d.bench.dev", i) }

// hook is the name of a hook in this scenario: a program of a language serves its example's hook.
func (s Scenario) hook(i int) string {
	if s.Language != "" && i == 0 {
		return policy
	}
	return Hook(i)
}

// Host is the number of the host that serves a hook.
func (s Scenario) Host(hook int) int { return hook % s.Hosts }

// Patch is the JSON Patch that a hook answers with; empty for a hook that does not patch.
func (s Scenario) Patch(hook int) []byte {
	if hook >= s.Patching {
		return nil
	}
	return fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/hook-%02d","value":"seen"}]`, hook)
}

// Wait is the time that a hook waits in a replica.
func (s Scenario) Wait(replica int) time.Duration {
	if replica == 0 && s.OneTakes > 0 {
		return s.OneTakes
	}
	return s.Takes
}
