package match

import (
	"iter"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The kinds of a bypass, as in metrics and audit annotations.
const (
	BypassNamespace  = "namespace"
	BypassUser       = "user"
	BypassGroup      = "group"
	BypassBreakGlass = "break-glass"
	BypassFailOpen   = "fail-open" // of a hook that has failed; the others are of requests
)

// BypassKinds are the kinds of a bypass of requests.
func BypassKinds() []string {
	return []string{BypassNamespace, BypassUser, BypassGroup, BypassBreakGlass}
}

// Bypass exempts requests of one cluster from all hooks, or from their failures. It is immutable.
type Bypass struct {
	// Namespaces are exempt by name: their objects, and the Namespaces themselves.
	Namespaces []string
	// Users and Groups are exempt, as in userInfo.
	Users, Groups []string
	// Until is the end of a break-glass, for which every request is exempt; zero without one.
	Until time.Time
	// Reason is the reason of the break-glass.
	Reason string
	// FailOpen are the requests that always fail open: hooks judge them, and none is fail-closed. As in rules of hooks, wildcards do not cover leases
	// and events (NamedOnly). Rules name the group of the resource that the client asked for.
	FailOpen []admissionregistrationv1.RuleWithOperations
}

// Of returns the kind of the bypass that exempts a request at a time, and the exempt name, or the reason of a break-glass. No
// kind means that hooks judge the request. A nil bypass exempts nothing.
func (b *Bypass) Of(r *admissionv1.AdmissionRequest, now time.Time) (kind, name string) {
	if b == nil {
		return "", ""
	}
	if now.Before(b.Until) {
		return BypassBreakGlass, b.Reason
	}
	if namespace := namespaceOf(r); namespace != "" && slices.Contains(b.Namespaces, namespace) {
		return BypassNamespace, namespace
	}
	if user := r.GetUserInfo().GetUsername(); user != "" && slices.Contains(b.Users, user) {
		return BypassUser, user
	}
	for _, group := range r.GetUserInfo().GetGroups() {
		if slices.Contains(b.Groups, group) {
			return BypassGroup, group
		}
	}
	return "", ""
}

// namespaceOf is the namespace that a namespaceSelector of a webhook is about: of a Namespace itself, that one.
func namespaceOf(r *admissionv1.AdmissionRequest) string {
	if r.GetNamespace() == "" && r.GetResource().GetGroup() == "" && r.GetResource().GetResource() == "namespaces" {
		return r.GetName()
	}
	return r.GetNamespace()
}

// Opens reports whether no failure of a hook or of the mesh refuses a request: it is exempt, by something else than a break-glass, or
// always fails open.
func (b *Bypass) Opens(a *Attributes) bool {
	if b == nil {
		return false
	}
	kind, _ := b.Of(a.req, b.Until) // at its end a break-glass is over
	return kind != "" || b.failsOpen(a.request)
}

// failsOpen reports whether a request always fails open. In the matchConditions of entries an API server finds the same: it too
// looks at the resource that the client asked for, in all versions that entries and hooks take.
func (b *Bypass) failsOpen(r *request) bool {
	return b != nil && slices.ContainsFunc(b.FailOpen, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return mismatch(&rule, r, r.requested.Resource) == ""
	})
}

// fingerprints stand for all of the bypass that the entries of the cluster have too: exemptions, and FailOpen. They are as long as the fingerprints
// of hooks, beside which they stand in the plan of an entry.
func (b *Bypass) fingerprints() []fingerprint {
	if b == nil {
		return nil
	}
	var all []fingerprint
	if len(b.Namespaces)+len(b.Users)+len(b.Groups) > 0 {
		d := digest{}
		d.add(planVersion, "bypass")
		for _, list := range [][]string{b.Namespaces, b.Users, b.Groups} {
			addList(&d, slices.Sorted(slices.Values(list)))
		}
		all = append(all, d.fingerprint())
	}
	if len(b.FailOpen) > 0 {
		all = append(all, b.failOpenFingerprint())
	}
	return all
}

// failOpenFingerprint stands for FailOpen.
func (b *Bypass) failOpenFingerprint() fingerprint {
	d := digest{}
	d.add(planVersion, "fail-open")
	for i := range b.FailOpen {
		d.addRule(&b.FailOpen[i])
	}
	return d.fingerprint()
}

// Bypass is the bypass of a cluster; nil without one.
func (s *Snapshot) Bypass(cluster string) *Bypass { return s.bypasses[cluster] }

// Bypasses yields each declared cluster with its bypass, nil for none, in no order.
func (s *Snapshot) Bypasses() iter.Seq2[string, *Bypass] {
	return func(yield func(string, *Bypass) bool) {
		for cluster, b := range s.bypasses {
			if !yield(cluster, b) {
				return
			}
		}
	}
}
