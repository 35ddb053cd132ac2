// Package shadow records the outcomes of hooks in shadow for recent reviews, in bounded memory. For each hour, cluster and hook it has how often the
// hook would have allowed, denied or changed a request, of which namespaces and users, and how long its calls took; and the latest cases with their
// messages and references to their objects. It keeps no object.
//
// Everything here is pure: no goroutine, no clock, no I/O.
package shadow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/periods"
)

// Limits of the records of one dispatcher.
const (
	// Retention is how far back records go, unless MaxBytes are reached before.
	Retention = 7 * 24 * time.Hour
	// MaxBytes bounds all records, in bytes. Past it the oldest hour of the cluster with most of them goes: a cluster that floods shortens
	// its own past.
	MaxBytes = 16 << 20
	// MaxHooks is how many hooks of one cluster have records in one hour. Calls of others are not recorded.
	MaxHooks = 256
	// MaxSubjects is how many pairs of namespace and user have counts of their own for each hook and hour. The rest is counted together.
	MaxSubjects = 64
	// MaxCases is how many cases of each outcome are kept for each hook and hour. The least recently seen case goes first.
	MaxCases = 8
	// MaxText is the most bytes of a message, a user and a name.
	MaxText = 512

	// Sizes are estimates for MaxBytes, without the texts.
	hookBytes, subjectBytes, caseBytes = 700, 160, 320
)

// Outcome is the effect that a call of a hook in shadow would have had. The set is closed.
type Outcome string

// The outcomes.
const (
	// Allowed: the hook had nothing against the request and did not change the object.
	Allowed Outcome = "allowed"
	// Patched: it would have changed the object.
	Patched Outcome = "patched"
	// Denied: it would have refused the request.
	Denied Outcome = "denied"
	// Failed: it gave no verdict, or could not be called. Its failurePolicy would have decided.
	Failed Outcome = "failed"
	// Dropped: it was not called, since a limit of calls in shadow was reached, or the dispatcher stopped. Nothing is known of the request.
	Dropped Outcome = "dropped"
)

// CallRecord is one call of a hook in shadow.
type CallRecord struct {
	// Cluster sent the review, and Hook was called.
	Cluster string
	Hook    match.HookID
	// Subject made the request.
	Subject Subject
	// Outcome is the effect that the call would have had.
	Outcome Outcome
	// Took is the time of the call; zero if it was not made.
	Took time.Duration
	// Message is the message of a denial, or why there is no verdict.
	Message string
	// Reference names the request and its object.
	Reference Reference
}

// Subject is a user who made requests, and their namespace.
type Subject struct {
	// Namespace is the namespace of the object; empty for one without.
	Namespace string
	// User is the name of the user.
	User string
}

// Reference names a request and its object.
type Reference struct {
	// UID is the uid of the request.
	UID string
	// TraceID is its trace; not valid without one.
	TraceID trace.TraceID
	// Operation, Group, Resource, Subresource and Name come from the request. Name is empty for Secrets, and ends with * if an older API server
	// completes it after admission.
	Operation, Group, Resource, Subresource, Name string
	// Instance is the process that answered; empty if none did.
	Instance string
}

// Counts are calls by their outcome.
type Counts struct{ Allowed, Patched, Denied, Failed, Dropped uint32 }

func (c *Counts) add(o Outcome) {
	switch o {
	case Allowed:
		c.Allowed++
	case Patched:
		c.Patched++
	case Denied:
		c.Denied++
	case Failed:
		c.Failed++
	case Dropped:
		c.Dropped++
	}
}

// Seen is when something was seen.
type Seen struct{ First, Last time.Time }

func (s *Seen) at(now time.Time) {
	if s.First.IsZero() {
		s.First = now
	}
	s.Last = now
}

// Hook has the calls of one hook in one cluster and hour.
type Hook struct {
	// Cluster sent the reviews, and Hook was called.
	Cluster string
	Hook    match.HookID
	// Hour is its begin.
	Hour time.Time
	Counts
	Seen
	// Took counts how long calls took.
	Took latency.Histogram
	// Subjects are the users who made the requests, with the namespaces, in no order.
	Subjects []SubjectCounts
	// Cases are the latest cases that are not allowed or dropped, in no order.
	Cases []Case
}

// SubjectCounts has the calls for one subject.
type SubjectCounts struct {
	Subject
	// Others is true of the calls for all subjects past MaxSubjects; Subject is empty then.
	Others bool
	Counts
	Seen
}

// Case is calls with the same outcome, subject and message.
type Case struct {
	Outcome Outcome
	Subject
	// Message is the message of the denial, or why there is no verdict; cut to MaxText.
	Message string
	// Calls is how many there were.
	Calls uint32
	Seen
	// Latest is the last one.
	Latest Reference
}

// Recorder keeps the records. Its methods may be called concurrently.
type Recorder struct{ log *periods.Log[hour] }

// hour has the records of one cluster and hour.
type hour struct {
	begun time.Time
	hooks map[match.HookID]*hook
}

type hook struct {
	Hook
	subjects map[subjectKey]int // the index in Subjects
}

type subjectKey struct {
	Subject

	others bool
}

// NewRecorder returns a recorder that holds at most so many bytes; zero means MaxBytes.
func NewRecorder(maxBytes int64) *Recorder {
	o := periods.Options{Length: time.Hour, Retention: Retention, MaxBytes: cmp.Or(maxBytes, MaxBytes), Shards: 1}
	return &Recorder{log: periods.New(o, func(begun time.Time) *hour {
		return &hour{begun: begun, hooks: map[match.HookID]*hook{}}
	})}
}

// Add records a call that ended now, or was not made.
func (r *Recorder) Add(now time.Time, c *CallRecord) {
	r.log.Update(now, c.Cluster, "", func(h *hour) int64 { return h.add(now, c) })
}

// Keep forgets all clusters but these.
func (r *Recorder) Keep(clusters []string) { r.log.Keep(clusters) }

// Dropped returns the clusters whose records were dropped for memory, and those from before which time.
func (r *Recorder) Dropped() map[string]time.Time { return r.log.Dropped() }

func (h *hour) add(now time.Time, c *CallRecord) (grown int64) {
	k := h.hooks[c.Hook]
	if k == nil {
		if len(h.hooks) >= MaxHooks {
			return 0
		}
		k = &hook{Hook: Hook{Cluster: strings.Clone(c.Cluster), Hook: c.Hook, Hour: h.begun}, subjects: map[subjectKey]int{}}
		h.hooks[c.Hook] = k
		grown = hookBytes
	}
	k.Counts.add(c.Outcome)
	k.Seen.at(now)
	if c.Took > 0 {
		k.Took.Observe(c.Took)
	}
	subject := Subject{Namespace: text(c.Subject.Namespace), User: text(c.Subject.User)}
	grown += k.addSubject(now, subject, c.Outcome)
	if c.Outcome != Allowed && c.Outcome != Dropped {
		grown += k.addCase(now, subject, c)
	}
	return grown
}

// addSubject returns how many bytes it took.
func (h *hook) addSubject(now time.Time, subject Subject, o Outcome) (grown int64) {
	key := subjectKey{Subject: subject}
	i, known := h.subjects[key]
	if !known && len(h.subjects) >= MaxSubjects {
		key = subjectKey{others: true}
		i, known = h.subjects[key]
	}
	if !known {
		key.Subject = key.clone()
		i = len(h.Subjects)
		h.subjects[key], h.Subjects = i, append(h.Subjects, SubjectCounts{Subject: key.Subject, Others: key.others})
		grown = subjectBytes + int64(len(key.Namespace)+len(key.User))
	}
	h.Subjects[i].Counts.add(o)
	h.Subjects[i].Seen.at(now)
	return grown
}

// addCase returns how many bytes it took.
func (h *hook) addCase(now time.Time, subject Subject, c *CallRecord) (grown int64) {
	message, same, oldest := text(c.Message), 0, -1
	for i := range h.Cases {
		k := &h.Cases[i]
		if k.Outcome != c.Outcome {
			continue
		}
		if k.Subject == subject && k.Message == message {
			before := k.size()
			k.see(now, c)
			return k.size() - before
		}
		if same++; oldest < 0 || k.Last.Before(h.Cases[oldest].Last) {
			oldest = i
		}
	}
	if same >= MaxCases {
		grown = -h.Cases[oldest].size()
		h.Cases = slices.Delete(h.Cases, oldest, oldest+1)
	}
	n := Case{Outcome: c.Outcome, Subject: subject.clone(), Message: strings.Clone(message)}
	n.see(now, c)
	h.Cases = append(h.Cases, n)
	return grown + n.size()
}

func (c *Case) see(now time.Time, call *CallRecord) {
	c.Calls++
	c.Seen.at(now)
	c.Latest = call.Reference
	for _, s := range c.Latest.texts() { // they may be parts of the body of the request
		*s = strings.Clone(text(*s))
	}
}

func (c *Case) size() int64 {
	n := caseBytes + len(c.Namespace) + len(c.User) + len(c.Message)
	for _, s := range c.Latest.texts() {
		n += len(*s)
	}
	return int64(n)
}

func (r *Reference) texts() []*string {
	return []*string{&r.UID, &r.Operation, &r.Group, &r.Resource, &r.Subresource, &r.Name, &r.Instance}
}

func (s Subject) clone() Subject { return Subject{strings.Clone(s.Namespace), strings.Clone(s.User)} }

// text cuts a text to MaxText.
func text(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText], "")
}

// Query selects records.
type Query struct {
	// Cluster and Hook (a name) select; empty selects all.
	Cluster, Hook string
	// Since bounds the hours by their end; zero bounds nothing.
	Since time.Time
}

// Hooks returns the calls of hooks, by hour. Several hours of one hook and cluster belong together.
func (r *Recorder) Hooks(q Query) (all []Hook) {
	r.log.Each(periods.Query{Cluster: q.Cluster, Since: q.Since}, func(_ string, h *hour) {
		for _, k := range h.hooks {
			if q.Hook == "" || k.Hook.Hook.Name == q.Hook {
				c := k.Hook
				c.Subjects, c.Cases = slices.Clone(c.Subjects), slices.Clone(c.Cases)
				all = append(all, c)
			}
		}
	})
	return all
}
