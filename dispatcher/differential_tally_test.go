package dispatcher_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// interesting lists the events that a run of so many cases has to see to prove anything.
func interesting(cases int) []string {
	if cases < enoughCases {
		return nil
	}
	all := []string{
		"allowed", "patched", "reinvoked", "failed open", "warned", "annotated",
		"in process", "over streams", "over HTTPS", "over HTTPS and in process", "over HTTPS and over streams", "asked in v1", "asked in v1beta1", "asked again",
		"converted", "converted Deployment", "converted Scale", "converted Widget", "converted and patched", "converted and reinvoked", "authorizer asked",
		"patched a built-in kind", "patched a custom resource",
		"refused with 400", "refused with 403", "refused with 404", "refused with 422", "refused with 500",
		"CREATE", "UPDATE", "DELETE", "CONNECT", "dry run",
		"asked ahead", "counted ahead", "discarded ahead", "asked ahead again",
	}
	if cases >= manyCases {
		for _, d := range deviations() {
			all = append(all, d.id)
		}
	}
	return all
}

// tally counts the events of a run.
type tally struct {
	mu       sync.Mutex
	seen     map[string]int
	reported int
}

func (y *tally) report() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.reported++
}

func (y *tally) reports() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.reported
}

// add counts a case that went well.
func (y *tally) add(e *experiment, j judgement) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.seen["cases"]++
	y.seen[e.Request.GetOperation()]++
	y.seen[fmt.Sprintf("%d hooks called", min(len(j.got.Calls), 6))]++
	for _, id := range j.deviations {
		y.seen[id]++
	}
	verdict := "allowed"
	if !j.got.Allowed {
		verdict = fmt.Sprintf("refused with %d", j.got.Status.Code)
	}
	for what, is := range map[string]bool{
		verdict: true, "patched": j.got.Object != "" && j.got.Patched, "reinvoked": j.got.reinvoked(),
		"failed open": len(j.got.FailedOpen) > 0, "warned": len(j.got.Warnings) > 0, "annotated": len(j.got.Audit) > 0,
		"dry run": e.Request.GetDryRun(), e.carriers(j.got.Calls): true, "authorizer asked": j.authorized,
		"patched a built-in kind":   j.got.Patched && e.typed(),
		"patched a custom resource": j.got.Patched && !e.typed(),
	} {
		if is {
			y.seen[what]++
		}
	}
	for what := range j.ahead {
		y.seen[what]++
	}
	for _, what := range slices.Concat(spoken(j.got.Calls), converted(e, j.got)) {
		y.seen[what]++
	}
}

// typed reports whether the object of the request is of a kind that is built in.
func (e *experiment) typed() bool {
	k := e.Request.GetKind()
	return e.world.typed(schema.GroupKind{Group: k.GetGroup(), Kind: k.GetKind()})
}

// converted are the events of calls whose hooks saw another version than the client's.
func converted(e *experiment, o outcome) []string {
	if !slices.ContainsFunc(o.Calls, func(c call) bool { _, is := c.converted(); return is }) {
		return nil
	}
	all := []string{"converted", "converted " + e.Request.GetKind().GetKind()}
	if o.Patched {
		all = append(all, "converted and patched")
	}
	if o.reinvoked() {
		all = append(all, "converted and reinvoked")
	}
	return all
}

// converted reports whether the hook saw another version than the client's, and which.
func (c call) converted() (as schema.GroupVersionKind, is bool) {
	var r k8sadmissionv1.AdmissionRequest
	if err := json.Unmarshal([]byte(c.Rest), &r); err != nil || r.RequestKind == nil || r.Kind == *r.RequestKind {
		return as, false
	}
	return schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind}, true
}

// carriers are how the calls of a case were carried.
func (e *experiment) carriers(calls []call) string {
	other := "in process"
	if e.world.Streams {
		other = "over streams"
	}
	https := 0
	for _, c := range calls {
		if c.HTTP.Version != "" {
			https++
		}
	}
	switch {
	case len(calls) == 0:
		return "nobody called"
	case https == 0:
		return other
	case https == len(calls):
		return "over HTTPS"
	}
	return "over HTTPS and " + other
}

// spoken are the events of calls over HTTPS.
func spoken(calls []call) []string {
	var all []string
	for _, c := range calls {
		if c.HTTP.Version != "" {
			all = append(all, "asked in "+path.Base(c.HTTP.Version))
		}
		if c.Attempt > 0 {
			all = append(all, "asked again")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String lists the counts, the most frequent first.
func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var out strings.Builder
	for _, what := range slices.SortedFunc(maps.Keys(y.seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(y.seen[b], y.seen[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&out, "\n%8d %s", y.seen[what], what)
	}
	return out.String()
}
