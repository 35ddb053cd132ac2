package match_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// TestTheOrderOfTheInputDecidesNothing compiles configurations, many of whose routes conflict, in other orders.
func TestTheOrderOfTheInputDecidesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(citest.Cases(4, 4, 40)) {
		w := changing{random: newRandom(seed), objects: map[string]match.Object{}, routes: map[string]match.RouteBinding{}}
		for step := range 20 {
			w.change()
			in := w.input()
			snapshot, findings := match.Compile(in)
			for range 3 {
				w.Shuffle(len(in.Objects), func(i, j int) { in.Objects[i], in.Objects[j] = in.Objects[j], in.Objects[i] })
				w.Shuffle(len(in.Routes), func(i, j int) { in.Routes[i], in.Routes[j] = in.Routes[j], in.Routes[i] })
				again, others := match.Compile(in)
				if diff := cmp.Diff(shown(t, snapshot), shown(t, again)); diff != "" {
					t.Fatalf("seed %d, step %d: (-one order +another):\n%s", seed, step, diff)
				}
				if diff := cmp.Diff(findings, others); diff != "" {
					t.Fatalf("seed %d, step %d: findings (-one order +another):\n%s", seed, step, diff)
				}
			}
		}
	}
}

// TestAConflictOfRoutesShowsNoReviewToMoreAndDropsNoCall compares the merged route of two to four conflicting routes with each of them.
func TestAConflictOfRoutesShowsNoReviewToMoreAndDropsNoCall(t *testing.T) {
	t.Parallel()
	r := newRandom(1)
	for range 500 {
		var routes []match.RouteBinding
		for i := range 2 + r.IntN(3) {
			routes = append(routes, match.RouteBinding{Name: fmt.Sprint(i), Configuration: "a", Route: match.Route{
				Stream: r.maybe(2), Hosts: pick(r, nil, []string{"h"}, []string{"h", "g"}), Authorities: pick(r, nil, []string{"x"}, []string{"y", "x"}), Shadow: r.maybe(2), Immediate: r.maybe(2),
				Clusters: pick(r, nil, []string{"one"}, []string{"one"}, []string{"two", "one"}, []string{"one", "two"}),
				Timeout:  pick(r, 0, time.Second, time.Minute), Speculate: r.maybe(2),
			}})
		}
		o := validating("", "a", "hook.io")
		o.Pending = []string{"hook.io"}
		snapshot, _ := match.Compile(match.Input{Objects: []match.Object{o}, Routes: routes})
		h := snapshot.Hooks()[0]
		for _, b := range routes {
			snapshot, _ := match.Compile(match.Input{Objects: []match.Object{o}, Routes: []match.RouteBinding{b}})
			if diff := agrees(h, snapshot.Hooks()[0]); diff != "" {
				t.Fatalf("%s\nroutes %+v\nroute  %+v\nbecame %+v", diff, routes, b.Route, h.Route)
			}
		}
	}
}

// grantOf is who may serve a hook.
func grantOf(h *match.Hook) identity.Grant {
	return identity.Grant{Names: h.Route.Hosts, Authorities: h.Route.Authorities}
}

// agrees says how a hook of conflicting routes differs from the same hook with a single route of them.
func agrees(h, alone *match.Hook) string {
	for _, cluster := range []string{"one", "two", "three"} {
		if alone.Serves(cluster) && !h.Serves(cluster) {
			return "calls for cluster " + cluster + " are dropped"
		}
		asked := h.Serves(cluster) && (!h.Route.Stream || len(h.Route.Hosts) > 0)
		if asked && !alone.Serves(cluster) {
			return "reviews of cluster " + cluster + " are shown"
		}
		if asked && h.Route.Stream != alone.Route.Stream {
			return "reviews are shown to another kind of server"
		}
	}
	for _, host := range h.Route.Hosts {
		for _, authority := range []string{"x", "y", "z"} {
			peer := identity.Named(host, authority)
			if grantOf(h).Includes(peer) && !grantOf(alone).Includes(peer) {
				return "reviews are shown to " + host + " of " + authority
			}
		}
	}
	if alone.Decides() && !h.Decides() {
		return "its denials are dropped"
	}
	if h.Route.Timeout != alone.Route.Timeout && h.Route.Timeout != 0 {
		return "the timeout is that of another"
	}
	return ""
}
