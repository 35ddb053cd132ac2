package match

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The entries that registration makes for a cluster. A cluster calls the validating hooks in several, since one entry has one
// failure policy.
const (
	// EntryFailClosed is the entry whose failure refuses the request.
	EntryFailClosed = "fail-closed"
	// EntryFailOpen is the entry whose failure lets the request pass.
	EntryFailOpen = "fail-open"
	// EntryAlwaysFailOpen is the entry by which requests that always fail open (Bypass.FailOpen) come to the hooks of EntryFailClosed.
	// Its failure lets the request pass.
	EntryAlwaysFailOpen = "always-fail-open"
)

const (
	// MaxPlanHooks is how many hooks a plan names. Validating hooks beyond that are called by both entries.
	MaxPlanHooks = 1024
	// maxEntryTimeout is the largest timeoutSeconds that Kubernetes accepts.
	maxEntryTimeout = 30 * time.Second
)

// Entry is the webhook of a cluster's own configuration by which a review came. As text it is NAME or NAME/PLAN; the plan is
// the entry's timeoutSeconds, a dot, and the sorted fingerprints of the hooks that the entries of the cluster were made from, and
// of its bypass:
//
//	fail-closed/11.8dZk0_qOhS2mWb7x
//
// The zero Entry is a request for all hooks of a stage.
type Entry struct {
	// Name is EntryFailClosed, EntryFailOpen or EntryAlwaysFailOpen; any other name stands for all hooks of the stage.
	Name string
	// Timeout is the entry's timeoutSeconds; 0 when there is no plan.
	Timeout time.Duration

	planned string // fingerprints, sorted
}

// NewEntry is an entry that is made, with all others of its cluster, from hooks (Snapshot.EntryHooks) and from the bypass of
// the cluster, which may be nil.
func NewEntry(name string, timeout time.Duration, hooks []*Hook, bypass *Bypass) Entry {
	return Entry{Name: name, Timeout: timeout, planned: plan(hooks, bypass)}
}

// plan is the fingerprints of the bypass and of the first hooks, sorted, MaxPlanHooks of them.
func plan(hooks []*Hook, bypass *Bypass) string {
	all := make([]string, 0, min(len(hooks)+2, MaxPlanHooks))
	for _, f := range bypass.fingerprints() {
		all = append(all, string(f))
	}
	for _, h := range hooks[:min(len(hooks), MaxPlanHooks-len(all))] {
		all = append(all, string(h.fingerprint))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// ParseEntry reads the text of an entry. A plan that is malformed or too long is no plan, so that all hooks are called that
// are not known to be called elsewhere. The entry refers to the text; the cost does not depend on its length.
func ParseEntry(text string) Entry {
	name, plan, _ := strings.Cut(text, "/")
	seconds, planned, ok := strings.Cut(plan, ".")
	if !ok {
		return Entry{Name: name}
	}
	timeout, err := strconv.ParseUint(seconds, 10, 8)
	if err != nil || timeout == 0 || timeout > uint64(maxEntryTimeout/time.Second) ||
		len(planned)%fingerprintLength != 0 || len(planned) > MaxPlanHooks*fingerprintLength {
		return Entry{Name: name}
	}
	return Entry{Name: name, Timeout: time.Duration(timeout) * time.Second, planned: planned}
}

// String is the text of the entry.
func (e Entry) String() string {
	if e.Timeout == 0 {
		return e.Name
	}
	return e.Name + "/" + strconv.Itoa(int(e.Timeout/time.Second)) + "." + e.planned
}

// Clone returns the entry without references to the text that it was parsed from.
func (e Entry) Clone() Entry {
	return Entry{Name: strings.Clone(e.Name), Timeout: e.Timeout, planned: strings.Clone(e.planned)}
}

// IgnoresFailures reports whether the failure of the entry lets the request pass.
func (e Entry) IgnoresFailures() bool {
	return e.Name == EntryFailOpen || e.Name == EntryAlwaysFailOpen
}

// IsGenerated reports whether the entry has a name that registration gives.
func (e Entry) IsGenerated() bool { return e.Name == EntryFailClosed || e.IgnoresFailures() }

// Takes reports whether hooks are called for a request that came by the entry. An API server decides by matchConditions whether a request comes by
// EntryFailClosed or by EntryAlwaysFailOpen; an API server without matchConditions sends it by both, and then the other entry takes it. An entry
// whose plan was made from another Bypass.FailOpen takes all requests: the API server may have sent them by no other one.
func (e Entry) Takes(a *Attributes) bool {
	switch e.Name {
	case EntryFailClosed:
		return !a.failsOpen || !e.plans(a.bypass.failOpenFingerprint())
	case EntryAlwaysFailOpen:
		return a.failsOpen || a.bypass == nil || !e.plans(a.bypass.failOpenFingerprint())
	}
	return true
}

// SamePlan reports whether two entries were made from the same hooks.
func (e Entry) SamePlan(other Entry) bool { return e.planned == other.planned }

func (e Entry) plans(f fingerprint) bool {
	at := func(i int) string { return e.planned[i*fingerprintLength:][:fingerprintLength] }
	n := len(e.planned) / fingerprintLength
	i := sort.Search(n, func(i int) bool { return at(i) >= string(f) })
	return i < n && at(i) == string(f)
}

// FailsClosed reports whether the hook refuses requests that it cannot judge. One in shadow never does.
func (h *Hook) FailsClosed() bool {
	return h.FailurePolicy != admissionregistrationv1.Ignore
}

// In reports whether the hook is called for reviews that came by an entry. A validating hook is called by the entry of its failure policy. The other
// entry calls it too, unless its plan has the fingerprint of the hook as it is now: only then the first entry brings all of its requests. So a hook
// whose policy, rules or selectors have changed since is called at worst twice, and is not left out; that holds too when two dispatchers judge the
// two entries by two configurations, since one plan names a hook once. By any other entry, and by none, all hooks are called. Mutating hooks are
// called by each entry, since order matters between them: their entries differ in the requests that they take. So do EntryFailClosed and
// EntryAlwaysFailOpen (Entry.Takes), which are of the same hooks.
func (h *Hook) In(e Entry) bool {
	if h.ID.Stage != admissionv1.Stage_STAGE_VALIDATE {
		return true
	}
	switch e.Name {
	case EntryFailClosed, EntryAlwaysFailOpen:
		return h.FailsClosed() || !e.plans(h.fingerprint)
	case EntryFailOpen:
		return !h.FailsClosed() || !e.plans(h.fingerprint)
	}
	return true
}
