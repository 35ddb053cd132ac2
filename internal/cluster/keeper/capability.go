package keeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// SparePeriods is how many periods longer than its own a capability is accepted that the mesh has made: entries that nothing can write
// go on for so long.
const SparePeriods = 3

// shownBy describes the entries of a cluster as this dispatcher has read them.
type shownBy struct {
	capability identity.Capability // zero for none
	present    bool                // whether there are entries
	writes     bool                // whether this dispatcher writes them
}

// madeCapabilities is the memory of a task about the capabilities that the mesh makes for its cluster.
type madeCapabilities struct {
	keys  *identity.CapabilityKeys
	known map[string]time.Time // when this dispatcher has seen a key first, with a document that asks for it
	until time.Time            // end of the capability that the entries showed last; zero for another one
}

// check takes the keys for a document. It fails if the document needs keys, and there are none.
func (r *madeCapabilities) check(c *kinds.Cluster, keys *identity.CapabilityKeys, now time.Time) error {
	names := keys.Names()
	if c.Spec.RotatesCapability() == 0 {
		names = nil
	} else if len(names) == 0 {
		return errors.New("spec.rotateCapability: this dispatcher has no key to make capabilities with, and the entries stay as they are: start " +
			"each dispatcher with the same --capability-key-file (`portcullis cluster capability key` prints a key), or remove the field")
	}
	before := r.known
	r.keys, r.known = keys, make(map[string]time.Time, len(names))
	for _, name := range names {
		at, ok := before[name]
		if !ok {
			at = now
		}
		r.known[name] = at
	}
	return nil
}

// explain adds to the reason why entries are not kept how long they are good.
func (r *madeCapabilities) explain(err error) error {
	if err == nil || r.until.IsZero() || errors.Is(err, errStale) {
		return err
	}
	return fmt.Errorf("%w; the capability in the entries is accepted until %s, and writes behind fail-closed entries are refused from then on",
		err, r.until.UTC().Format(time.RFC3339))
}

// capabilityFor returns the capability for the entries of a cluster. Without spec.rotateCapability it is the capability that the entries
// show, since the mesh knows only hashes of the document's capabilities. With it, the dispatcher that writes replaces an accepted
// capability once the other dispatchers had the time to learn of the key. The others keep an accepted capability.
func (m *machine) capabilityFor(c *kinds.Cluster, by shownBy, now time.Time) (identity.Capability, error) {
	period := c.Spec.RotatesCapability()
	m.made.until = time.Time{}
	if period == 0 {
		return keptFor(c, by.capability, now)
	}
	keys, accepted := m.made.keys, accepts(c, by.capability, now)
	if of, ok := keys.Find(by.capability, m.cluster); ok {
		accepted, m.made.until = !now.After(of.End), of.End
	}
	if by.capability.IsZero() {
		accepted = by.present && len(c.Spec.Identities) > 0
	}
	if accepted && (!by.writes || now.Sub(m.made.known[keys.Names()[0]]) < m.keyOverlap) {
		return by.capability, nil
	}
	return keys.Make(m.cluster, endOf(now, period)), nil
}

// endOf is the end of a capability that is made at a moment. It is the same during a period, for all dispatchers.
func endOf(now time.Time, period time.Duration) time.Time {
	seconds := int64(period / time.Second)
	return time.Unix((now.Unix()/seconds+1+SparePeriods)*seconds, 0)
}

// keptFor is the capability that entries show, if it is accepted.
func keptFor(c *kinds.Cluster, shown identity.Capability, now time.Time) (identity.Capability, error) {
	if accepts(c, shown, now) {
		return shown, nil
	}
	if len(c.Spec.Identities) == 0 {
		return identity.Capability{}, errors.New("its entries show no capability that is accepted, and it has no identity: write them once by " +
			"`portcullis cluster register --capability-file FILE --apply`, and the capability in them is kept; or have the mesh make it " +
			"(spec.rotateCapability)")
	}
	return identity.Capability{}, nil
}

// accepts reports whether the cluster's document has a capability that has not expired.
func accepts(c *kinds.Cluster, shown identity.Capability, now time.Time) bool {
	if shown.IsZero() {
		return false
	}
	for i := range c.Spec.Capabilities {
		known := &c.Spec.Capabilities[i]
		if known.Sum() == shown.Sum() {
			end := known.Expires()
			return end.IsZero() || now.Before(end)
		}
	}
	return false
}
