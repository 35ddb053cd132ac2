package suite

import (
	"regexp"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Group is measured in turns: the first cell, the second, and so on to the last, and then all of them again. Other load
// of the machine falls on all of them alike, and one round of two cells is a ratio.
type Group []report.Cell

// All is a whole run: every number of hooks with Pods of 2 kB and 20 kB, fewer with 1 MB, the other targets, and hosts and webhooks in some
// languages.
func All(languages ...string) []Group {
	var all []Group
	for _, bytes := range []int{scenario.Small, scenario.Medium} {
		few := table(bytes, true, spread{1, 1}, spread{8, 8}, spread{8, 1})
		if bytes == scenario.Small {
			few = append(few, configured()...)
		}
		all = append(all, few, table(bytes, true, spread{32, 32}, spread{32, 1}))
	}
	all = append(all, table(scenario.Large, false, spread{1, 1}, spread{8, 8}, spread{8, 1}),
		observed(), adapted(), patching(), judged(), protocols(), speculation(), hedging())
	return append(all, spoken(languages, scenario.Small, scenario.Medium)...)
}

// Short shows whether it is worth while to run all: the targets, with Pods of 2 kB.
func Short(languages ...string) []Group {
	few := append(table(scenario.Small, false, spread{1, 1}, spread{8, 8}, spread{8, 1}), configured()...)
	return append([]Group{few, observed(), adapted(), judged(), speculation(), hedging()}, spoken(languages, scenario.Small)...)
}

// Select keeps the cells whose names a pattern matches, as "validate/2kB/8 hooks/8 hosts/dispatcher/full".
func Select(groups []Group, pattern *regexp.Regexp) []Group {
	var kept []Group
	for _, g := range groups {
		var some Group
		for _, c := range g {
			if pattern.MatchString(c.String()) {
				some = append(some, c)
			}
		}
		if len(some) > 0 {
			kept = append(kept, some)
		}
	}
	return kept
}

// spread is how many hooks there are, on how many hosts.
type spread struct{ hooks, hosts int }

// table are the cells of one size of Pods: everybody with validating hooks, and those who are not limits with mutating ones.
func table(bytes int, tenth bool, spreads ...spread) Group {
	var g Group
	for _, x := range spreads {
		validate := scenario.Scenario{Stage: scenario.Validate, Hooks: x.hooks, Hosts: x.hosts, Bytes: bytes}
		mutate := validate
		mutate.Stage = scenario.Mutate
		g = append(g, cells(validate, report.Full, report.Native, report.Bridge, report.Dispatcher, report.Bare, report.Streams)...)
		g = append(g, cells(mutate, report.Full, report.Native, report.Bridge, report.Dispatcher)...)
		if x.hooks == 1 {
			g = append(g, cells(validate, report.Full, report.RoundTrip)...)
		}
	}
	if !tenth {
		return g
	}
	for _, c := range g[:len(g):len(g)] {
		c.Load = report.Tenth
		g = append(g, c)
	}
	return g
}

// cells are the cells of some contenders.
func cells(s scenario.Scenario, load report.Load, who ...report.Contender) Group {
	var g Group
	for _, w := range who {
		g = append(g, report.Cell{Scenario: s, Contender: w, Load: load})
	}
	return g
}

// configured are 8 hooks that match among 10,000.
func configured() Group {
	return cells(scenario.Among(), report.Full, report.Native, report.Dispatcher, report.Bare)
}

// observed are reviews that leave records and traces, and those that leave neither.
func observed() Group {
	var g Group
	for _, n := range []int{1, 8} {
		s := scenario.Scenario{Stage: scenario.Validate, Hooks: n, Hosts: n, Bytes: scenario.Small}
		g = append(g, cells(s, report.Full, report.BridgeNoRecords, report.BridgeTraced)...)
	}
	return g
}

// adapted are webhooks that the dispatcher calls, and the same ones behind hosts.
func adapted() Group {
	var g Group
	for _, bytes := range []int{scenario.Small, scenario.Medium} {
		s := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: bytes}
		g = append(g, cells(s, report.Full, report.Webhooks, report.Adapted)...)
	}
	return g
}

// patching are hooks of which one and all patch.
func patching() Group {
	var g Group
	for _, n := range []int{1, 8} {
		g = append(g, cells(scenario.Patching(n), report.Full, report.Native, report.Dispatcher)...)
	}
	return g
}

// judged are checks of images by webhooks, hosts and policies.
func judged() Group {
	who := []report.Contender{report.Native, report.NativePolicies, report.Dispatcher, report.Policies}
	g := append(cells(scenario.Checking(1), report.Full, who...), cells(scenario.Checking(8), report.Full, who...)...)
	return append(g, cells(scenario.Bound(scenario.ManyBindings), report.Full, report.NativePolicies, report.Policies)...)
}

// protocols are the two of the JSON edge at one rate, and with as many callers as there can be.
func protocols() Group {
	both := []report.Contender{report.Bridge, report.BridgeHTTP2}
	small := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small}
	slow := scenario.Replicas(false, false)
	g := append(cells(small, report.Steady, both...), cells(slow, report.Steady, both...)...)
	return append(g, cells(slow, report.Full, both...)...)
}

// Budget are the roads of which a budget is made, at full load and at few reviews a second.
func Budget() []Group {
	var g Group
	for _, x := range []spread{{1, 1}, {8, 8}, {8, 1}, {32, 32}, {32, 1}} {
		s := scenario.Scenario{Stage: scenario.Validate, Hooks: x.hooks, Hosts: x.hosts, Bytes: scenario.Small}
		g = append(g, cells(s, report.Full, report.Dispatcher, report.Bridge, report.BridgeHTTP2)...)
	}
	g = append(g, cells(scenario.Patching(8), report.Full, report.Dispatcher, report.Bridge)...)
	for _, c := range g[:len(g):len(g)] {
		if c.Hooks == c.Hosts && c.Hooks <= 8 {
			c.Load = report.Slow
			g = append(g, c)
		}
	}
	return []Group{g}
}

// speculation are hooks that take their time, one caller at a time.
func speculation() Group {
	g := cells(scenario.Taking(1, false), report.Alone, report.Native, report.Dispatcher)
	g = append(g, cells(scenario.Taking(8, false), report.Alone, report.Native, report.Dispatcher)...)
	return append(g, cells(scenario.Taking(8, true), report.Alone, report.Dispatcher)...)
}

// hedging are three replicas, of which one may be slow.
func hedging() Group {
	g := cells(scenario.Replicas(false, false), report.Steady, report.Dispatcher)
	g = append(g, cells(scenario.Replicas(false, true), report.Steady, report.Dispatcher)...)
	g = append(g, cells(scenario.Replicas(true, false), report.Steady, report.Dispatcher)...)
	return append(g, cells(scenario.Replicas(true, true), report.Steady, report.Dispatcher)...)
}

// spoken are a host and a webhook in each language, in turns.
func spoken(languages []string, sizes ...int) []Group {
	var all []Group
	for _, language := range languages {
		for _, bytes := range sizes {
			for _, deleting := range []bool{false, true} {
				who := []report.Contender{report.Host, report.Framework}
				if language == "go" && deleting {
					who = append(who, report.Bare)
				}
				var g Group
				for _, load := range report.InFlights() {
					g = append(g, cells(scenario.Policy(language, bytes, deleting), load, who...)...)
				}
				all = append(all, g)
			}
		}
	}
	return all
}

const (
	// partOfSearch is the part of a cell's time that each number of callers is tried for before it. Connections are open and
	// caches are filled then.
	partOfSearch = 10
	// partOfFull is the part of the full throughput at which the load Tenth is.
	partOfFull = 10
	// steadyRate is the rate of the load Steady, in reviews a second.
	steadyRate = 1_000
	// slowRate is the rate of the load Slow, in reviews a second.
	slowRate = 200
	// slowly is how much longer the loads take that are neither full nor a part of it: they have fewer reviews a second.
	slowly = 3
	// slowest is the same for Slow, which leaves the processors idle nearly always: a profile of it has few samples.
	slowest = 8
	// warmCallers send reviews before such a load, each one for every warmEach of the duration.
	warmCallers, warmEach = 16, 25 * time.Millisecond
	// languageCallers send reviews to a program of a language, which compiles itself meanwhile, until it has worked for timesToWarm times the
	// duration; Java's for timesToWarmJava. It takes patience times as long at most.
	languageCallers, timesToWarm, timesToWarmJava, patience = 64, 2, 12, 4
	// maxCallers is the most callers of a full load.
	maxCallers = 128
	// largeCallers is the most callers that send reviews of 1 MB: each of them holds several copies for each hook.
	largeCallers = 4
	// DefaultRounds is how often each cell is measured.
	DefaultRounds = 5
	// DefaultDuration is how long each cell is measured in all its rounds together.
	DefaultDuration = 1250 * time.Millisecond
	// DefaultLeast is how many reviews a round of an open load has at least: fewer have no percentiles.
	DefaultLeast = 10
)
