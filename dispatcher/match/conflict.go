package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// conflict is two or more bindings that name exactly the same hooks. Neither their order nor their names decide which one counts. They become one
// binding: a host gets a review only if each of them gives it, and a call is made if any of them wants it.
type conflict []RouteBinding

func (c conflict) sort() {
	slices.SortFunc(c, func(a, b RouteBinding) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Digest, b.Digest))
	})
}

func (c conflict) binding() RouteBinding {
	b := c[0]
	b.Digest, b.Route = c.digest(), c.route()
	for i := range c {
		b.names = append(b.names, c[i].Name)
	}
	return b
}

// digest stands for the whole content of the bindings; empty if a binding has no digest.
func (c conflict) digest() string {
	var all strings.Builder
	for i := range c {
		if c[i].Digest == "" {
			return ""
		}
		fmt.Fprintf(&all, "%q %q %s\n", c[i].Name, c[i].Source, c[i].Digest)
	}
	return all.String()
}

// route has the fields that the routes agree on, and the default where they differ. The fields that decide who sees a review are merged strictly
// (streams or clientConfig, hosts, their authorities, clusters): only a host that all routes name sees it. The hook applies to each cluster that any
// route names. A call that no host may get fails, and the failurePolicy of the hook decides.
func (c conflict) route() Route {
	merged := c[0].Route
	for i := range c[1:] {
		merged = merged.merge(c[1+i].Route)
	}
	return merged
}

// merge is the route of two that conflict. It is commutative and associative.
func (r Route) merge(other Route) Route {
	merged := Route{
		Stream: r.Stream, Hosts: inBoth(r.Hosts, other.Hosts), Clusters: union(r.Clusters, other.Clusters),
		HostClusters: inBoth(r.HostClusters, other.HostClusters),
		After:        inBoth(r.After, other.After), Before: inBoth(r.Before, other.Before),
		Speculate: r.Speculate && other.Speculate, Shadow: r.Shadow && other.Shadow, AllDenials: r.AllDenials && other.AllDenials,
		Parallel: r.Parallel && other.Parallel,
	}
	if r.Stream != other.Stream || !sameSet(r.Clusters, other.Clusters) {
		merged.Stream, merged.Hosts = true, nil
	}
	var some bool
	if merged.Authorities, some = agreed(r.Authorities, other.Authorities); !some {
		merged.Hosts = nil
	}
	if len(merged.Hosts) == 0 {
		merged.Authorities = nil // there is no host to vouch for
	}
	merged.Immediate = merged.Stream && (r.atOnce() || other.atOnce())
	if r.Timeout == other.Timeout {
		merged.Timeout = r.Timeout
	}
	if r.Hedge == other.Hedge {
		merged.Hedge = r.Hedge
	}
	return merged
}

// atOnce reports whether hooks of the route are called without a probe.
func (r Route) atOnce() bool { return r.Immediate || !r.Stream }

// findings are one for each of the bindings.
func (c conflict) findings() []Finding {
	r, until := c.route(), "the fields on which they agree count, and the defaults where they differ"
	if r.Stream && len(r.Hosts) == 0 {
		until = "no host is called, every call of these hooks fails, and their failurePolicy decides"
	}
	names := make([]string, len(c))
	for i := range c {
		names[i] = fmt.Sprintf("%q", c[i].Name)
	}
	all := make([]Finding, len(c))
	for i := range c {
		others := strings.Join(slices.Delete(slices.Clone(names), i, i+1), ", ")
		all[i] = c[i].finding(SeverityError, CodeRouteConflict, "",
			fmt.Sprintf("HookRoute %s names the same hooks: keep one of them; until then %s", others, until))
	}
	return all
}

// inBoth is the intersection of two lists, sorted.
func inBoth(a, b []string) []string {
	var both []string
	for _, s := range sorted(a) {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// agreed are the authorities that may vouch by both of two lists, of which an empty one means all; false when none may.
func agreed(a, b []string) (authorities []string, some bool) {
	switch {
	case len(a) == 0:
		return sorted(b), true
	case len(b) == 0:
		return sorted(a), true
	}
	both := inBoth(a, b)
	return both, len(both) > 0
}

// union is the union of two lists of clusters, sorted. An empty list means all clusters.
func union(a, b []string) []string {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	return sorted(slices.Concat(a, b))
}

func sameSet(a, b []string) bool { return slices.Equal(sorted(a), sorted(b)) }

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
