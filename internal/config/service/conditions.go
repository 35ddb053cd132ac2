package service

import (
	"slices"
	"strconv"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// The types of conditions.
const (
	conditionAccepted   = "Accepted"
	conditionInRotation = "InRotation"
	conditionEffective  = "Effective"
	conditionServed     = "Served"
	conditionRegistered = "Registered"
	conditionDeciding   = "Deciding"
)

func condition(kind string, is bool, reason, message string) *configv1.Condition {
	c := &configv1.Condition{Type: kind, Status: "False", Reason: reason, Message: message}
	if is {
		c.Status = "True"
	}
	return c
}

// conditions returns the conditions of an object. The record is nil for objects of other sources.
func (m *meshState) conditions(key config.Key, r *etcdstore.Record) []*configv1.Condition {
	out := []*configv1.Condition{m.accepted(key)}
	if strings.HasSuffix(key.Kind, "WebhookConfiguration") {
		out = append(out, m.inRotation(key, r))
	}
	out = append(out, m.effective(key, r))
	if served := m.served(key); served != nil {
		out = append(out, served)
	}
	if deciding := m.deciding(key); deciding != nil {
		out = append(out, deciding)
	}
	if registered := m.registered(key); registered != nil {
		out = append(out, registered)
	}
	return out
}

func (m *meshState) accepted(key config.Key) *configv1.Condition {
	for _, p := range m.byKey[key] {
		if p.Severity == match.SeverityError {
			return condition(conditionAccepted, false, "Invalid", p.Message)
		}
	}
	return condition(conditionAccepted, true, "Valid", "")
}

func (m *meshState) inRotation(key config.Key, r *etcdstore.Record) *configv1.Condition {
	switch {
	case r == nil: // of a source without a history, where no hook is new
		return condition(conditionInRotation, true, "Immediate", "")
	case r.Removing:
		return condition(conditionInRotation, false, "Removing", "it is being removed: reviews that have begun with it are finished")
	case len(r.Pending) > 0:
		return condition(conditionInRotation, false, "Pending", m.whyPending(key, r))
	}
	return condition(conditionInRotation, true, "NonePending", "")
}

// effective reports whether every live dispatcher uses this version of the object for new reviews, and, of hooks, whether the entries that the
// mesh keeps bring all of these.
func (m *meshState) effective(key config.Key, r *etcdstore.Record) *configv1.Condition {
	if len(m.dispatchers) == 0 {
		return &configv1.Condition{Type: conditionEffective, Status: "Unknown", Reason: "NoDispatcher", Message: "no dispatcher says that it lives"}
	}
	var behind, diverging []string
	for _, d := range statusesOf(m.dispatchers) {
		switch {
		case slices.Contains(d.GetDiverging(), key.String()):
			diverging = append(diverging, d.GetDispatcherId())
		case r != nil && !reached(d, r.Revision), r == nil && d.GetApplied().GetDigest() != m.live.Digest:
			behind = append(behind, d.GetDispatcherId())
		}
	}
	c := condition(conditionEffective, true, "Applied", "")
	without := m.withoutEntries(key)
	switch {
	case len(diverging) > 0:
		c = condition(conditionEffective, false, "Diverging", "an older version is in force, see its findings, in: "+strings.Join(diverging, ", "))
	case len(behind) > 0:
		c = condition(conditionEffective, false, "Behind", "not known yet to: "+strings.Join(behind, ", "))
	case without != "":
		c = condition(conditionEffective, false, "EntriesBehind", without)
	}
	c.Dispatchers = slices.Concat(diverging, behind)
	return c
}

// reached reports whether a dispatcher uses a revision of etcd, or a later one, for new reviews.
func reached(d *configv1.DispatcherStatus, revision int64) bool {
	return etcdRevision(d.GetApplied().GetSources()) >= revision
}

// held returns the oldest revision of etcd that a review of a dispatcher uses; 0 if there is none.
func held(d *configv1.DispatcherStatus) int64 { return parsedRevision(d.GetHeld()) }

// etcdRevision returns the revision of etcd from the revisions of all sources; 0 if there is none.
func etcdRevision(sources map[string]string) int64 {
	return parsedRevision(sources[etcdstore.SourceName])
}

func parsedRevision(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func revisionText(n int64) string { return strconv.FormatInt(n, 10) }
