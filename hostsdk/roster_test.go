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

// TestRoster plays testdata/roster.txt: which dispatchers a host dials as it learns of them. -rewrite writes it anew.
//
//	roster NAME...                    a roster for the configured names; tls=NAME sets Options.ServerName
//	resolve NAME ip=(IP, ...)         a name was resolved
//	welcomed KEY id=ID                a link has met a dispatcher; the input names its peers: ID ADDRESS...
//	leaving KEY                       the dispatcher of a link leaves; the input names its peers
//	ended KEY                         a link has lost its session
//	gone KEY                          a stopped link is no more
func TestRoster(t *testing.T) {
	var r *roster
	datadriven.RunTest(t, "testdata/roster.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "roster" {
			var names []string
			var tls string
			for _, arg := range d.CmdArgs {
				if arg.Key == "tls" {
					tls = arg.Vals[0]
				} else {
					names = append(names, arg.Key)
				}
			}
			r = newRoster(names, tls)
			return ""
		}
		return describe(r, step(t, r, d))
	})
}

func step(t *testing.T, r *roster, d *datadriven.TestData) plan {
	t.Helper()
	key := strings.ReplaceAll(d.CmdArgs[0].Key, "_", " ")
	var at endpoint
	if link := r.links[key]; link != nil {
		at = link.endpoints[0]
	}
	switch d.Cmd {
	case "resolve":
		var ips []string
		for _, arg := range d.CmdArgs[1:] {
			ips = append(ips, arg.Vals...)
		}
		return r.resolve(key, ips)
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
		return plan{}
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

// describe prints a plan, and the links that there are after it.
func describe(r *roster, p plan) string {
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
	var links []string
	for _, key := range slices.Sorted(maps.Keys(r.links)) {
		link := r.links[key]
		state := cmp.Or(link.dispatcher, "dialling")
		if link.stopping {
			state += ", stopping"
		}
		links = append(links, fmt.Sprintf("%s (%s)", key, state))
	}
	fmt.Fprintf(&out, "links: %s\n", strings.Join(links, "; "))
	return out.String()
}

// TestRosterHoldsAtMostSoManyLinks: a dispatcher that names peers without end costs a bounded number of dials.
func TestRosterHoldsAtMostSoManyLinks(t *testing.T) {
	r := newRoster([]string{"mesh:1"}, "")
	r.resolve("mesh:1", []string{"10.0.0.1"})
	var peers []*hostv1.Peer
	for i := range 1000 {
		peers = append(peers, &hostv1.Peer{DispatcherId: fmt.Sprint(i), Addresses: []string{fmt.Sprintf("10.1.%d.%d:1", i/256, i%256)}})
	}
	r.welcomed("10.0.0.1:1", endpoint{}, "d1", peers)
	if len(r.links) != maxTargets {
		t.Errorf("%d links, want %d", len(r.links), maxTargets)
	}
	r.resolve("mesh:1", nil)
	r.ended("10.0.0.1:1")
	for key := range maps.Clone(r.links) {
		r.gone(key)
	}
	if len(r.links) != 0 || len(r.met) != 0 {
		t.Errorf("links %v, met %v: want none left", r.links, r.met)
	}
}
