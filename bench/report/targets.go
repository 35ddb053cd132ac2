package report

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// target is a ratio of one run that Portcullis is held to, with validating hooks at full throughput.
type target struct {
	// what says it in words.
	what string
	// bound is the ratio; least tells that it is the least, else the most.
	bound float64
	least bool
	// of is the scenario of the numerator, by the size of the Pod; against that of the denominator.
	of, against func(bytes int) key
	// time compares the time per review, else the throughput.
	time bool
}

// at is the key of a validating scenario at full throughput.
func at(who Contender, hooks, hosts int) func(bytes int) key {
	return func(bytes int) key {
		return key{scenario.Scenario{Stage: scenario.Validate, Hooks: hooks, Hosts: hosts, Bytes: bytes}, who, Full}
	}
}

// targets are all.
func targets() []target {
	return []target{
		{
			what: "dispatcher, 8 hooks on 8 hosts: time per review, times the stream limit", bound: 1.3, time: true,
			of: at(Dispatcher, 8, 8), against: at(Streams, 8, 8),
		},
		{
			what: "dispatcher, 8 hooks on 8 hosts: throughput, times kube-apiserver's", bound: 12, least: true,
			of: at(Dispatcher, 8, 8), against: at(Native, 8, 8),
		},
		{
			what: "bridge, 8 hooks: throughput, times kube-apiserver's", bound: 8, least: true,
			of: at(Bridge, 8, 8), against: at(Native, 8, 8),
		},
		{
			what: "bridge, 32 hooks: throughput, times kube-apiserver's", bound: 15, least: true,
			of: at(Bridge, 32, 32), against: at(Native, 32, 32),
		},
		{
			what: "dispatcher, 8 hooks on one host: time per review, times the stream limit of 1 hook", bound: 1.5, time: true,
			of: at(Dispatcher, 8, 1), against: at(Streams, 1, 1),
		},
	}
}

// ratio is what a run showed; ok is false when it did not measure it.
func (t target) ratio(index map[key]measure.Sample, bytes int) (got float64, ok bool) {
	of, hasOf := index[t.of(bytes)]
	against, hasAgainst := index[t.against(bytes)]
	if t.time {
		of, against = against, of // the time is the inverse of the throughput
	}
	return ratio(of.Throughput, against.Throughput), hasOf && hasAgainst
}

// met says whether a ratio reaches the target.
func (t target) met(got float64) bool {
	if t.least {
		return got >= t.bound
	}
	return got <= t.bound
}

// bounds is the bound in words.
func (t target) bounds() string {
	if t.least {
		return fmt.Sprintf("at least %g", t.bound)
	}
	return fmt.Sprintf("at most %g", t.bound)
}

// targets writes the table of targets.
func (p *page) targets() {
	p.linef("## Targets\n")
	p.linef("| ratio | target | Pod | measured | |")
	p.linef("|---|---|---|---|---|")
	for _, t := range targets() {
		for _, bytes := range []int{scenario.Small, scenario.Medium} {
			got, ok := t.ratio(p.index, bytes)
			if !ok {
				continue
			}
			verdict := "missed"
			if t.met(got) {
				verdict = "met"
			}
			p.linef("| %s | %s | %s | %s | %s |", t.what, t.bounds(), scenario.Scenario{Bytes: bytes}.Size(), number(got), verdict)
		}
	}
	p.linef("")
}
