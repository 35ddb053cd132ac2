// Package touch decides when a webhook configuration is written once more after a change of its webhooks.
//
// kube-apiserver can miss such a change. It keeps compiled webhooks by the name of their object
// (validatingWebhookConfigurationManager.configurationsCache, k8s.io/apiserver/pkg/admission/configuration). A compilation that listed
// the objects before a change may overwrite the entry of that cache after the change has cleared it. The next update of the object clears it
// again, also if it changes an annotation alone. An update that changes nothing is not stored, and reaches no watch.
//
// The package does no I/O. Its writers are the registrar for entries, and package follow for the webhook configurations of others.
package touch

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Annotation is the annotation that the later write changes.
	Annotation = "portcullis.dev/written-again"
	// Delay is how long after a change the later write is. By then each API server has the change from its watch, and has ended
	// compilations that began before. A Rewrite may have a shorter one.
	Delay = 5 * time.Second
)

// Mark is the annotation of an object that was written again since its webhooks have changed. An API server raises the generation with
// each change of the webhooks, and an object that is made again has another uid.
func Mark(o metav1.Object) string { return fmt.Sprintf("%s/%d", o.GetUID(), o.GetGeneration()) }

// Rewrite decides when one object is written again after its last change. The zero Rewrite has seen no change. One goroutine uses it.
type Rewrite struct {
	// Delay takes the place of the constant; 0 is the constant.
	Delay time.Duration

	of    string // the Mark
	since time.Time
	again bool // whether Wrote was called for it
}

// Pending reports whether an object has to be written again. It has been if its annotation is as wanted, or Wrote was called for its
// last change: another writer may remove the annotation, and there is one later write for each change.
func (c *Rewrite) Pending(o metav1.Object, want string) bool {
	return o.GetAnnotations()[Annotation] != want && (!c.again || c.of != Mark(o))
}

// Due reports whether it is time for that. It counts from the call that saw the change first.
func (c *Rewrite) Due(o metav1.Object, want string, now time.Time) bool {
	if of := Mark(o); of != c.of {
		*c = Rewrite{Delay: c.Delay, of: of, since: now}
	}
	return c.Pending(o, want) && now.Sub(c.since) >= cmp.Or(c.Delay, Delay)
}

// Wrote notes that the object of the last call of Due was written again.
func (c *Rewrite) Wrote() { c.again = true }
