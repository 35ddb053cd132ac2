package hostsdk

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestDialPlan plays testdata/dial_plan.txt: which dispatchers a host dials as it learns of them. -rewrite writes it anew.
//
//	plan NAME...                      a plan for the configured names; tls=NAME sets Options.ServerName
//	resolve NAME ip=(IP, ...)         a name was resolved
//	welcomed KEY id=ID                a loop has met a dispatcher; the input names its peers: ID ADDRESS...
//	leaving KEY                       the dispatcher of a loop leaves; the input names its peers
//	ended KEY                         a loop has lost its session
//	gone KEY                          a stopped loop is no more
func TestDialPlan(t *testing.T) {
	var r *dialPlan
	datadriven.RunTest(t, "testdata/dial_plan.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "plan" {
			var names []string
			var tls string
			for _, arg := range d.CmdArgs {
				if arg.Key == "tls" {
					tls = arg.Vals[0]
				} else {
					names = append(names, arg.Key)
				}
			}
			r = newDialPlan(names, tls)
			return ""
		}
		return describe(r, step(t, r, d))
	})
}

func step(t *testing.T, r *dialPlan, d *datadriven.TestData) dialChanges {
	t.Helper()
	key := strings.ReplaceAll(d.CmdArgs[0].Key, "_", " ")
	var at endpoint
	if loop := r.loops[key]; loop != nil {
		at = loop.endpoints[0]
	}
	switch d.Cmd {
	case "resolve":
		var ips []string
		for _, arg := range d.CmdArgs[1:] {
			ips = append(ips, arg.Vals...)
		}
		return r.resolved(key, ips)
	case "welcomed":
		return r.welcomed(key, at, d.CmdArgs[1].Vals[0], peersOf(d.Input))
	case "leaving":
		return r.leaving(key, at, peersOf(d.Input))
	case "ended":
		return r.ended(key)
	case "gone":
		return r.gone(key)
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return dialChanges{}
	}
}

func peersOf(input string) []*hostv1.Peer {
	var peers []*hostv1.Peer
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		peers = append(peers, &hostv1.Peer{DispatcherId: words[0], Addresses: words[1:]})
	}
	return peers
}

// describe prints a plan, and the loops that there are after it.
func describe(r *dialPlan, p dialChanges) string {
	var out strings.Builder
	for _, key := range p.stop {
		fmt.Fprintf(&out, "stop %s\n", key)
	}
	for _, target := range p.start {
		fmt.Fprintf(&out, "start %s", target.key)
		for _, e := range target.endpoints {
			fmt.Fprintf(&out, " %s as %s", e.address, e.serverName)
		}
		fmt.Fprintf(&out, " after %s\n", target.delay)
	}
	var loops []string
	for _, key := range slices.Sorted(maps.Keys(r.loops)) {
		loop := r.loops[key]
		state := cmp.Or(loop.dispatcher, "dialling")
		if loop.stopping {
			state += ", stopping"
		}
		loops = append(loops, fmt.Sprintf("%s (%s)", key, state))
	}
	fmt.Fprintf(&out, "loops: %s\n", strings.Join(loops, "; "))
	return out.String()
}

// TestDialPlanHoldsAtMostSoManyLoops: a dispatcher that names peers without end costs a bounded number of dials.
func TestDialPlanHoldsAtMostSoManyLoops(t *testing.T) {
	r := newDialPlan([]string{"mesh:1"}, "")
	r.resolved("mesh:1", []string{"10.0.0.1"})
	var peers []*hostv1.Peer
	for i := range 1000 {
		peers = append(peers, &hostv1.Peer{DispatcherId: fmt.Sprint(i), Addresses: []string{fmt.Sprintf("10.1.%d.%d:1", i/256, i%256)}})
	}
	r.welcomed("10.0.0.1:1", endpoint{}, "d1", peers)
	if len(r.loops) != maxTargets {
		t.Errorf("%d loops, want %d", len(r.loops), maxTargets)
	}
	r.resolved("mesh:1", nil)
	r.ended("10.0.0.1:1")
	for key := range maps.Clone(r.loops) {
		r.gone(key)
	}
	if len(r.loops) != 0 || len(r.met) != 0 {
		t.Errorf("loops %v, met %v: want none left", r.loops, r.met)
	}
}
