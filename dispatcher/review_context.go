package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// reviewContext matches hooks with the object of a review as mutated so far, and converts that object into the versions that hooks take. Attributes
// and views belong to one revision of the object. One goroutine owns it: the review's, or a shadow call's.
type reviewContext struct {
	dispatcher *Dispatcher
	lookups    context.Context //nolint:containedctx // bounds the look-ups in the cluster of one review
	request    *review.Request
	cluster    cluster
	attributes *match.Attributes
	revision   uint32 // of the object in attributes and views
	views      []*chain.View
	// unmatched are the policies of which it is not known whether they apply, and why; nil for nearly all reviews.
	unmatched map[*match.Hook]error
	// policies is the context of policies, with their meter; nil before the first.
	policies    context.Context //nolint:containedctx // as lookups
	policyMeter policyMeter
	// conditionTime is how long matchConditions have been evaluated, but for evaluations in the turn of the cluster.
	conditionTime time.Duration
	// explanations are nil before the first policy, and unless the review asks for them.
	explanations *policy.Explanations
	// codec applies the patches of mutating policies; nil in validating reviews.
	codec chain.Codec
}

var (
	_ chain.Subject   = (*reviewContext)(nil)
	_ match.Evaluator = (*reviewContext)(nil)
)

func (s *reviewContext) init(lookups context.Context, d *Dispatcher, r *review.Request, bypass *match.Bypass) {
	s.dispatcher, s.lookups, s.request, s.cluster = d, lookups, r, cluster{Cluster: d.clusterOf(r), request: r}
	s.attributes = match.NewAttributes(r.Admission, &s.cluster).Booked(&s.cluster).EvaluatedBy(s).Under(bypass)
}

// Evaluate implements [match.Evaluator]: once the matchConditions of the review have had FreeEvaluationTime, it evaluates them in the turn of the cluster.
func (s *reviewContext) Evaluate(ctx context.Context, evaluate func(context.Context)) {
	if free := s.dispatcher.freeTime() - s.conditionTime; free > 0 {
		begun, brief := time.Now(), evaluation.Briefly(ctx, free)
		evaluate(brief)
		if s.conditionTime += time.Since(begun); !evaluation.Interrupted(brief) {
			return // though a look-up of the authorizer may have taken long: the cluster may be slow, and its reviews need not wait for each other
		}
	}
	if done, err := s.dispatcher.evaluationTurns.Own(ctx, s.request.Admission.GetCluster()); err == nil {
		defer done()
	}
	evaluate(ctx) // it reports the end of ctx
}

// attributesOf returns the attributes of the request with an object. A new revision discards the views of the last one.
func (s *reviewContext) attributesOf(o chain.Object) *match.Attributes {
	if o.Revision != s.revision {
		s.attributes.ReleaseObject()
		s.attributes, s.revision, s.views = s.attributes.WithObject(o.Raw), o.Revision, nil
	}
	return s.attributes
}

// Match implements [chain.Subject]. A shadow hook is matched by its shadowCall, so that the review does not wait for look-ups,
// unless the caller asks for outcomes.
func (s *reviewContext) Match(h *match.Hook, o chain.Object) match.Decision {
	if h.Route.Shadow && !h.Pending && !s.request.Explain {
		return match.Decision{Match: true}
	}
	return s.matchHook(h, o)
}

func (s *reviewContext) matchHook(h *match.Hook, o chain.Object) match.Decision {
	d := h.ShouldCall(s.lookups, s.attributesOf(o))
	if d.Unmatched != nil {
		if s.unmatched == nil {
			s.unmatched = map[*match.Hook]error{}
		}
		s.unmatched[h] = d.Unmatched
	}
	return d
}

// View implements [chain.Subject].
func (s *reviewContext) View(o chain.Object, as conversion.ResourceKind) (*chain.View, error) {
	attributes := s.attributesOf(o)
	for _, v := range s.views {
		if v.As == as {
			return v, nil
		}
	}
	object, old, err := attributes.In(s.lookups, &as)
	if err != nil {
		return nil, err
	}
	v := &chain.View{As: as, Object: object, OldObject: old}
	s.views = append(s.views, v)
	return v, nil
}

// Default implements [chain.Subject].
func (s *reviewContext) Default(patched []byte, v *chain.View) ([]byte, error) {
	kind := s.requestKind()
	if v != nil {
		kind = v.As.Kind
	}
	return s.cluster.Default(s.lookups, kind, patched, nil)
}

func (s *reviewContext) requestKind() schema.GroupVersionKind {
	k := s.request.Admission.GetKind()
	return schema.GroupVersionKind{Group: k.GetGroup(), Version: k.GetVersion(), Kind: k.GetKind()}
}

// Rebase implements [chain.Subject] with a three-way merge. It converts the object before and after the hook to the version
// of the request and applies their difference to o, so that fields that the hook's version does not have are kept.
func (s *reviewContext) Rebase(o chain.Object, seen, changed []byte) ([]byte, error) {
	to := s.requestKind()
	from, err := s.cluster.Convert(s.lookups, seen, to)
	if err != nil {
		return nil, err
	}
	back, err := s.cluster.Convert(s.lookups, changed, to)
	if err != nil {
		return nil, err
	}
	return conversion.Rebase(o.Raw, from, back)
}

// message returns a request with the object as mutated so far, in the version of v. Unchanged parts are shared with r.
func message(r *admissionv1.AdmissionRequest, o chain.Object, v *chain.View) *admissionv1.AdmissionRequest {
	if o.Revision == 0 && v == nil {
		return r
	}
	m := &admissionv1.AdmissionRequest{
		Uid: r.GetUid(), Cluster: r.GetCluster(),
		Kind: r.GetKind(), Resource: r.GetResource(), SubResource: r.GetSubResource(),
		RequestKind: r.GetRequestKind(), RequestResource: r.GetRequestResource(),
		RequestSubResource: r.GetRequestSubResource(),
		Name:               r.GetName(), Namespace: r.GetNamespace(), Operation: r.GetOperation(),
		UserInfo: r.GetUserInfo(), OldObject: r.GetOldObject(), Options: r.GetOptions(), DryRun: r.DryRun,
		Object:         withRaw(r.GetObject(), o.Raw),
		ObjectRevision: o.Revision,
		Projection:     r.GetProjection(),
	}
	if v == nil {
		return m
	}
	if m.GetRequestKind() == nil {
		m.RequestKind, m.RequestResource, m.RequestSubResource = r.GetKind(), r.GetResource(), r.GetSubResource()
	}
	kind, resource := v.As.Kind, v.As.Resource
	m.Kind = &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
	m.Resource = &admissionv1.GroupVersionResource{
		Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
	}
	m.SubResource = v.As.Subresource
	m.Object, m.OldObject = withRaw(r.GetObject(), v.Object), withRaw(r.GetOldObject(), v.OldObject)
	return m
}

func withRaw(o *admissionv1.Object, raw []byte) *admissionv1.Object {
	if o == nil {
		return nil
	}
	return &admissionv1.Object{ContentType: o.GetContentType(), Raw: raw}
}

// cluster adds to a cluster the facts of one review and its memory: the labels of the namespace come from the facts, or are
// looked up once, and decoded or converted objects are accounted to the review. It belongs to the goroutine of its
// review context.
type cluster struct {
	match.Cluster

	request   *review.Request
	phases    observe.Phases // of the review; none in shadow calls
	namespace namespace
	memoryErr error // the last refusal by Grow that a retry may help
}

// Grow implements [match.Memory]. The error is a status: 429 where trying again may help, else 413.
func (c *cluster) Grow(n int64) error {
	err := c.request.Reservation.Grow(n)
	var full *memory.FullError
	switch {
	case !errors.As(err, &full):
		return err
	case full.Hopeless:
		return apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the object takes more memory decoded than one review may have: %v", full))
	}
	c.memoryErr = err
	return apierrors.NewTooManyRequests(err.Error(), 1)
}

// Shrink implements [match.Memory].
func (c *cluster) Shrink(n int64) { c.request.Reservation.Shrink(n) }

// Convert implements [match.Cluster]. Its memory is reserved while it runs, and that by which the object has grown to the end of the review: a
// conversion webhook may make any object of a small one.
func (c *cluster) Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	n := conversionFactor * conversion.ExtentOf(object).Typed()
	if err := c.request.Reservation.Grow(n); err != nil {
		return nil, err
	}
	defer c.request.Reservation.Shrink(n)
	defer c.phases.End(observe.PhaseConverted)
	converted, err := c.Cluster.Convert(ctx, object, to)
	if err != nil {
		return nil, err
	}
	if err := c.request.Reservation.Grow(int64(len(converted) - len(object))); err != nil {
		return nil, fmt.Errorf("the object in %s: %w", to.GroupVersion(), err)
	}
	return converted, nil
}

// Default implements [match.Cluster]. Its memory is reserved while it runs: for the object before it begins, and for the defaults before they are
// filled in.
func (c *cluster) Default(ctx context.Context, kind schema.GroupVersionKind, object []byte, _ func(int64) error) ([]byte, error) {
	e := conversion.ExtentOf(object)
	n := 2*e.Untyped() + 2*e.Tree() // before and after
	if err := c.request.Reservation.Grow(n); err != nil {
		return nil, err
	}
	defer func() { c.request.Reservation.Shrink(n) }()
	defer c.phases.End(observe.PhaseDefaulted)
	return c.Cluster.Default(ctx, kind, object, func(bytes int64) error {
		err := c.request.Reservation.Grow(bytes)
		if err == nil {
			n += bytes
		}
		return err
	})
}

// Objects implements [match.Cluster].
func (c *cluster) Objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	defer c.phases.End(observe.PhaseLookedUp)
	return c.Cluster.Objects(ctx, s)
}

// namespace is the result of the last look-up of a namespace.
type namespace struct {
	found  bool
	name   string
	labels map[string]string
	err    error
}

// NamespaceLabels implements [match.Cluster].
func (c *cluster) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if n := &c.namespace; !n.found || n.name != name {
		n.found, n.name = true, name
		n.labels, n.err = c.Cluster.NamespaceLabels(ctx, name)
		c.phases.End(observe.PhaseLookedUp)
	}
	return c.namespace.labels, c.namespace.err
}
