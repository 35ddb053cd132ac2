// Package scenario says what is reviewed: how many hooks there are, on which hosts, and how large the Pod is, and makes
// the same bytes and the same configuration out of it for everyone who is measured.
package scenario

import "fmt"

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
	// Stage is which hooks are asked. None of them patches.
	Stage Stage `json:"stage"`
	// Hooks is how many hooks match.
	Hooks int `json:"hooks"`
	// Hosts is how many programs serve them, in equal parts: as many as Hooks, or one.
	Hosts int `json:"hosts"`
	// Bytes is the size of the Pod as JSON.
	Bytes int `json:"bytes"`
}

// String names the scenario, as "validate/2kB/8 hooks/1 host".
func (s Scenario) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", s.Stage, s.Size(), plural(s.Hooks, "hook"), plural(s.Hosts, "host"))
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

// All are the scenarios of a whole run: every number of hooks with Pods of 2 kB and 20 kB, and fewer with 1 MB.
func All() []Scenario {
	all := combine([]int{Small, Medium}, []int{1, 8, 32})
	return append(all, combine([]int{Large}, []int{1, 8})...)
}

// Short are a few that show whether it is worth while to run all.
func Short() []Scenario { return combine([]int{Small}, []int{1, 8}) }

// combine makes all scenarios of some sizes and numbers of hooks.
func combine(sizes, hooks []int) []Scenario {
	var all []Scenario
	for _, stage := range []Stage{Validate, Mutate} {
		for _, bytes := range sizes {
			for _, n := range hooks {
				all = append(all, Scenario{Stage: stage, Hooks: n, Hosts: n, Bytes: bytes})
				if n > 1 {
					all = append(all, Scenario{Stage: stage, Hooks: n, Hosts: 1, Bytes: bytes})
				}
			}
		}
	}
	return all
}

// Hook is the name of a hook, by its number.
func Hook(i int) string { return fmt.Sprintf("hook-%02d.bench.dev", i) }

// Host is the number of the host that serves a hook.
func (s Scenario) Host(hook int) int { return hook % s.Hosts }
