package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Limits of a report.
const (
	// MaxChanges is the most changes by policy, cluster and effects.
	MaxChanges = 2_000
	// MaxNames is the most namespaces, and the most users, of a change. The count of the others has the name Others.
	MaxNames = 1_000
	// MaxCases is the most cases of a change: the latest.
	MaxCases = 5
	// MaxCasesBytes is the most bytes of the requests of all cases.
	MaxCasesBytes = 256 << 20
	// MaxNameBytes is the most bytes of the name of a cluster, a namespace or a user. A longer one counts as Others.
	MaxNameBytes = 1024
	// Others stands for the names past MaxNames.
	Others = "(others)"
)

// Report has the differences between two configurations. Its JSON form is stable: fields may be added.
type Report struct {
	// Lines are the lines of the log, and Requests those that were judged.
	Lines    int `json:"lines"`
	Requests int `json:"requests"`
	// First and Last are the times of the first and the last request, if the log has them.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Left are the lines that were left out.
	Left []Count `json:"left"`
	// WithoutOld are the updates that were judged as though they changed nothing, since the log does not have the object before them.
	WithoutOld int `json:"withoutOldObject"`
	// Denied are allowed now and denied by the candidate, and Allowed the reverse. AlreadyDenied are denied by the log, which has no policy to compare.
	Denied        int `json:"denied"`
	Allowed       int `json:"allowed"`
	AlreadyDenied int `json:"alreadyDenied"`
	// Same are the requests without any difference, and Unmatched those that no policy or hook of the candidate is about.
	Same      int `json:"same"`
	Unmatched int `json:"unmatched"`
	// Changes are the differences, by policy.
	Changes []Change `json:"changes"`
	// Incomplete is true if there were more than MaxChanges, or cases of more than MaxCasesBytes.
	Incomplete bool `json:"incomplete"`
}

// Count is a number of requests.
type Count struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
}

// Change is a difference of the effect of a policy in a cluster.
type Change struct {
	// Policy is the kind and the name of the policy, or the names of configuration and hook; empty for a difference of the changed object alone.
	Policy  string `json:"policy,omitempty"`
	Cluster string `json:"cluster"`
	// Now and Then are the effects in force and of the candidate: allowed, denied, failed, failed-open, warned or changed. In shadow they follow "shadow: ".
	Now  string `json:"now"`
	Then string `json:"then"`
	// Requests is how many there are. Namespaces and Users are by number.
	Requests   int     `json:"requests"`
	Namespaces []Count `json:"namespaces"`
	Users      []Count `json:"users"`
	// Cases are the latest.
	Cases []Case `json:"cases"`
}

// Case is one request of a change.
type Case struct {
	File      string    `json:"file"`
	Line      int       `json:"line"`
	Time      time.Time `json:"time,omitzero"`
	UID       string    `json:"uid,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	User      string    `json:"user,omitempty"`
	Operation string    `json:"operation"`
	Object    string    `json:"object"`
	Message   string    `json:"message,omitempty"`
	// WithoutOld is true if the log does not have the object before an update.
	WithoutOld bool `json:"withoutOldObject,omitempty"`

	entry *Entry
	bytes int // of the request, about
}

// Entry is the request of a case.
func (c *Case) Entry() *Entry { return c.entry }

// collector makes a report.
type collector struct {
	judged, denied, allowed, already, same, unmatched int
	first, last                                       time.Time
	left                                              map[string]int
	changes                                           map[changeKey]*collected
	incomplete                                        bool
	bytes                                             int // of the requests of cases
}

type changeKey struct{ policy, cluster, now, then string }

type collected struct {
	requests          int
	namespaces, users map[string]int
	cases             []Case // the latest at the end
}

func newCollector() *collector {
	return &collector{left: map[string]int{}, changes: map[changeKey]*collected{}}
}

// add counts a request. Without compared the log has the verdict of now, and does not say by which policy.
func (c *collector) add(e *Entry, request *admissionv1.AdmissionRequest, now, then verdict, compared bool) {
	c.judged++
	if !e.Time.IsZero() {
		if c.first.IsZero() || e.Time.Before(c.first) {
			c.first = e.Time
		}
		if e.Time.After(c.last) {
			c.last = e.Time
		}
	}
	if !then.matched {
		c.unmatched++
	}
	if !compared && now.denied {
		c.already++
		return
	}
	if !compared {
		now.object = then.object // changes are listed by policy
	}
	switch {
	case !now.denied && then.denied:
		c.denied++
	case now.denied && !then.denied:
		c.allowed++
	}
	differences := changes(now, then)
	if len(differences) == 0 {
		c.same++
	}
	for _, d := range differences {
		key := changeKey{d.policy, named(request.GetCluster()), d.now, d.then}
		one := c.changes[key]
		if one == nil && len(c.changes) == MaxChanges {
			c.incomplete = true
			continue
		}
		if one == nil {
			one = &collected{namespaces: map[string]int{}, users: map[string]int{}}
			c.changes[key] = one
		}
		one.requests++
		count(one.namespaces, cmp.Or(named(request.GetNamespace()), "-"))
		count(one.users, cmp.Or(named(request.GetUserInfo().GetUsername()), "-"))
		c.keep(one, Case{
			File: e.File, Line: e.Line, Time: e.Time, UID: request.GetUid(), Namespace: request.GetNamespace(), User: request.GetUserInfo().GetUsername(),
			Operation: request.GetOperation(), Object: objectOf(request), Message: d.reason, WithoutOld: e.WithoutOld, entry: e,
			bytes: proto.Size(request) + len(d.reason),
		})
	}
}

// named returns a name of a log, if it is short enough to be kept.
func named(name string) string {
	if len(name) > MaxNameBytes {
		return Others
	}
	return name
}

func count(names map[string]int, name string) {
	if names[name] == 0 && len(names) >= MaxNames {
		name = Others
	}
	names[name]++
}

// keep keeps a case of a change if it is among the latest, and there is room. Requests are judged side by side, so that their places give their
// order.
func (c *collector) keep(of *collected, one Case) {
	if c.bytes+one.bytes > MaxCasesBytes {
		c.incomplete = true
		return
	}
	of.cases = append(of.cases, one)
	c.bytes += one.bytes
	slices.SortStableFunc(of.cases, func(a, b Case) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if len(of.cases) > MaxCases {
		c.bytes -= of.cases[0].bytes
		of.cases = slices.Delete(of.cases, 0, 1)
	}
}

// report is the report, with the most frequent changes first.
func (c *collector) report(l *Log) *Report {
	left := maps.Clone(l.Left)
	if left == nil {
		left = map[string]int{}
	}
	for name, n := range c.left {
		left[name] += n
	}
	r := &Report{
		Lines: l.Lines, Requests: c.judged, First: c.first, Last: c.last, Left: sorted(left), WithoutOld: l.WithoutOld, Denied: c.denied, Allowed: c.allowed,
		AlreadyDenied: c.already, Same: c.same, Unmatched: c.unmatched, Changes: []Change{}, Incomplete: c.incomplete,
	}
	for key, one := range c.changes {
		cases := slices.Clone(one.cases)
		slices.Reverse(cases)
		r.Changes = append(r.Changes, Change{
			Policy: key.policy, Cluster: key.cluster, Now: key.now, Then: key.then, Requests: one.requests,
			Namespaces: sorted(one.namespaces), Users: sorted(one.users), Cases: cases,
		})
	}
	slices.SortFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Now, b.Now), cmp.Compare(a.Then, b.Then))
	})
	return r
}

// sorted are counts, the largest first.
func sorted(counts map[string]int) []Count {
	all := make([]Count, 0, len(counts))
	for name, n := range counts {
		all = append(all, Count{name, n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Refuses reports whether the candidate refuses requests that are allowed now.
func (r *Report) Refuses() bool { return r.Denied > 0 }
