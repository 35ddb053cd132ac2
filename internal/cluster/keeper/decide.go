package keeper

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// familiesAge is the age at which the resources of the cluster are read again.
const familiesAge = time.Minute

// errStale is the error while the configuration is stale: entries are made from a fresh one only.
var errStale = errors.New("the configuration of this dispatcher is stale")

// observed is all that one attempt finds.
type observed struct {
	at        time.Time
	revision  string         // of the configuration in force
	fresh     bool           // whether entries may be made of it
	document  *kinds.Cluster // nil without spec.registration
	keys      *identity.CapabilityKeys
	bundle    []byte // caBundle for the entries
	bundleErr error  // why there is none
	leads     bool   // whether this dispatcher writes. Asked once: a dry run is a dry run to its end.
	entries   registration.Objects
}

// decision is the work of one attempt, in the order of its fields. The zero decision finds the entries in sync.
type decision struct {
	again    registration.Objects // are written once more
	err      error                // ends the attempt
	families bool                 // whether the resources of the cluster are read
	apply    bool                 // whether the entries are planned and applied, else changes are known
	options  registration.Options // for the plan, without the resources
	dryRun   bool
	compared string           // names the state that the comparison is about
	changes  []registrar.Diff // of the last comparison of this state
}

// machine decides on the entries of one cluster. It has no clock, goroutine or I/O: observations come in, and decisions go out. One goroutine
// uses it.
type machine struct {
	cluster    string
	keyOverlap time.Duration // of Options
	made       madeCapabilities
	again      registrar.Again
	planned    planned
	familiesAt time.Time        // when the resources of the cluster were read; zero before
	compared   string           // of the last comparison that left nothing for this dispatcher to write
	changes    []registrar.Diff // by that comparison, without the objects
}

func newMachine(cluster string, o *Options) *machine {
	return &machine{
		cluster: cluster, keyOverlap: o.KeyOverlap,
		again: registrar.Again{Cluster: cluster, Delay: o.Lag}, planned: planned{settle: settleLags * o.Lag},
	}
}

// ready returns why the cluster is not asked. With release another dispatcher may be able to write, and gets the Lease.
func (m *machine) ready(o *observed) (release bool, err error) {
	if !o.fresh || o.document == nil {
		return false, errStale
	}
	if o.bundleErr != nil {
		return true, o.bundleErr
	}
	err = m.made.check(o.document, o.keys, o.at)
	return err != nil, err
}

// decide compares an observation with the last comparison. A break-glass comes first: entries that are empty may have other errors.
func (m *machine) decide(o *observed) (d decision) {
	m.planned.see(m.cluster, o.entries, o.at)
	if o.leads {
		d.again = m.again.Due(o.entries, o.at)
	}
	if d.err = registrar.CheckBreakGlass(o.entries); d.err != nil {
		return d
	}
	shown := shownBy{o.entries.Capability(), o.entries.Mutating != nil || o.entries.Validating != nil, o.leads}
	if d.options, d.err = m.optionsFor(o.document, shown, o.at); d.err != nil {
		return d
	}
	d.options.CABundle, d.dryRun = o.bundle, !o.leads
	d.compared = o.revision + version(o.entries.Mutating == nil, o.entries.Mutating) + version(o.entries.Validating == nil, o.entries.Validating) +
		fmt.Sprintf("/%x/%x", sha256.Sum256(o.bundle), d.options.Capability.Sum())
	d.families = m.familiesAt.IsZero() || o.at.Sub(m.familiesAt) >= familiesAge
	if d.apply = d.families || d.compared != m.compared || o.leads && !unchanged(m.changes); !d.apply {
		d.changes = m.changes
	}
	return d
}

// version identifies the state of an object.
func version(absent bool, o metav1.Object) string {
	if absent {
		return "/absent"
	}
	return fmt.Sprintf("/%s %s", o.GetUID(), o.GetResourceVersion())
}

// optionsFor are the options of a document.
func (m *machine) optionsFor(c *kinds.Cluster, by shownBy, now time.Time) (registration.Options, error) {
	r := c.Spec.Registration
	o := registration.Options{Name: r.Name, URL: r.URL, OwnNamespace: r.OwnNamespace}
	o.Timeouts.Mutate, o.Timeouts.Reinvoke, o.Timeouts.Validate = r.Timeouts()
	var err error
	o.Capability, err = m.capabilityFor(c, by, now)
	return o, err
}

// readFamilies notes that the resources of the cluster were read, which may change the plan.
func (m *machine) readFamilies(at time.Time) { m.familiesAt, m.compared = at, "" }

// applied notes the changes of an apply that has succeeded. They are known until the state is another one, if this dispatcher has nothing
// to write: the API server stores the entries as planned, or another dispatcher writes them.
func (m *machine) applied(d *decision, changes []registrar.Diff) {
	if !d.dryRun && !unchanged(changes) {
		return
	}
	m.compared, m.changes = d.compared, nil
	for _, c := range changes {
		m.changes = append(m.changes, registrar.Diff{Object: c.Object, Action: c.Action, WithoutConditions: c.WithoutConditions})
	}
}

func unchanged(changes []registrar.Diff) bool {
	return !slices.ContainsFunc(changes, func(c registrar.Diff) bool { return c.Action != registrar.Unchanged })
}

// outcome is how an attempt ended.
type outcome struct {
	result  string
	soon    bool // whether the next attempt is soon
	leads   bool
	changes []registrar.Diff
	err     error
}

// end is the outcome of an attempt with these changes.
func (m *machine) end(o *observed, changes []registrar.Diff, err error) outcome {
	out := outcome{result: resultUnchanged, leads: o.leads, changes: changes, err: m.made.explain(err)}
	switch {
	case errors.Is(err, registrar.ErrBreakGlass):
		out.result = resultBreakGlass
	case err != nil:
		out.result = resultFailed
	case !unchanged(changes) && o.leads:
		out.result = resultChanged
	case !unchanged(changes):
		out.result = resultBehind
	}
	out.soon = out.result == resultBehind || out.result == resultChanged || o.leads && m.again.Pending(o.entries) || !m.planned.settled()
	return out
}
