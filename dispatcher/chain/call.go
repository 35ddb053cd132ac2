package chain

import (
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// state is the state of a call: idle, then skipped or started, then ended or abandoned.
type state uint8

const (
	idle      state = iota // not matched, or not started yet
	skipped                // the hook does not apply
	started                // outstanding
	ended                  // result is set
	abandoned              // cancelled; its result is ignored
)

// call is one hook in one round.
type call struct {
	review.Call // its ID is -1 until assignID

	failOpen        bool   // Options.FailOpen
	view            *View  // nil: the version of the request
	input           []byte // the object in the version that the hook takes
	state           state
	reason          string        // of a skipped call, and of a shadow call that cannot be made
	limit           time.Duration // how long the hook may take
	turnDeadline    time.Time     // of a speculative call: the deadline counted from its turn, for callAgain
	result          review.Result
	patched         bool                           // the patch changed the object
	applying        time.Duration                  // time to apply the patch
	verbatim        bool                           // the patch applies to the object that the caller sent
	replacedVerdict *admissionv1.AdmissionResponse // set by failPatch
	refused         *admissionv1.Status            // refuses the review whatever the failure policy
}

func newCall(h *match.Hook, round uint32) *call {
	return &call{Call: review.Call{ID: -1, Hook: h, Round: round}}
}

// match matches the hook with an object. The call is then skipped, refused, or may be converted to the returned version.
func (c *call) match(o *Options, object Object) (as *conversion.ResourceKind) {
	c.failOpen = o.FailOpen
	d := o.Subject.Match(c.Hook, object)
	switch {
	case d.Err != nil:
		c.refused = matchError(c.Hook, d.Err)
	case !d.Match:
		c.skip(d.Skip)
	}
	return d.As
}

// applies reports whether the call is neither skipped nor refused so far.
func (c *call) applies() bool { return c.state != skipped && c.refused == nil }

func (c *call) skip(reason string) { c.state, c.reason = skipped, reason }

// convert sets the input of a hook that applies: the object, or its view in the version that the hook takes. An object that
// cannot be converted refuses the review, whatever the failure policy (SEMANTICS C21). A policy fails then by itself, if a binding of it meets the
// request (policyDispatcher of k8s.io/apiserver/pkg/admission/plugin/policy/generic).
func (c *call) convert(o *Options, object Object, as *conversion.ResourceKind) {
	if c.input = object.Raw; as == nil || !c.applies() {
		return
	}
	view, err := o.Subject.View(object, *as)
	if err != nil && c.Hook.Policy != nil {
		view, err = &View{As: *as}, nil
	}
	if err != nil {
		c.refused = internal("hook %q takes %s, and the object cannot be converted: %v", c.Hook.ID.Name, as.Kind.GroupVersion(), err)
		return
	}
	c.view, c.input = view, view.Object
}

// refuse sets the status that refuses the review because of this hook, whatever its failure policy.
func (c *call) refuse(s *admissionv1.Status) *admissionv1.Status {
	c.refused = s
	return s
}

// start returns the call for [Machine.Next].
func (c *call) start(object Object) Start { return Start{Call: c.Call, Object: object, View: c.view} }
