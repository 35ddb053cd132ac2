package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

const (
	// PendingAnnotation is the annotation with the initializers that an object is created with, as a JSON list of names: metadata has no
	// field for them any more. An empty list creates the object as it is. It never reaches the cluster.
	PendingAnnotation = "initializers.portcullis.dev/pending"
	// initializeVerb is the verb that a user needs to say which initializers act (spec/1).
	initializeVerb = "initialize"
	// updateOperation is the operation of an update.
	updateOperation = "UPDATE"
	// releaseTimeout bounds the wait for the end of a hold after its review was given up.
	releaseTimeout = time.Second
)

// Stager stages the objects of reviews while their initializers act.
type Stager interface {
	// Stage makes room for the object of a review and returns its hold. It does no I/O. It fails if a limit is reached.
	Stage(r *review.Request) (Hold, error)
}

// Hold is the staged object of one review. It belongs to that review.
type Hold interface {
	// Start asks the initializers of calls to act at the same time, and never blocks. pending are these initializers and those behind
	// them, as [match.HookID.Pending] has them. object is the object as it is now, which is staged first. Then ask, unless it is nil, asks the
	// hosts of an initializer: it is a call of [review.Backend.Start]. Without it, a controller acts by itself, and there is one call. done is called
	// exactly once for each call, from any goroutine. The returned function cancels a call: done is then called before it returns, unless it was
	// called before.
	Start(ctx context.Context, calls []review.Call, object []byte, pending []string, ask Ask, done func(i int, r review.Result)) (cancel func(i int))
	// Release ends the hold. It returns when nothing is staged any more, or ctx has ended.
	Release(ctx context.Context)
}

// Ask asks the hosts of initializer i of some calls.
type Ask = func(i int, done func(review.Result)) (cancel func())

// noStager stands for a stager that there is not.
type noStager struct{}

var errNoStager = errors.New("objects can be staged only in etcd, and this dispatcher has none: start it with --data-dir or --etcd")

// Stage implements [Stager].
func (noStager) Stage(*review.Request) (Hold, error) { return nil, errNoStager }

// initializers is the [review.Backend] of the initializers of one review: it stages the object, and calls the hosts of an initializer over
// streams if its route has a stream.
type initializers struct{ run *run }

// Start implements [review.Backend].
func (s initializers) Start(ctx context.Context, b *review.CallSet, done func(i int, r review.Result)) (cancel func(i int)) {
	x := s.run
	if x.hold == nil {
		hold, err := x.dispatcher.options.Stager.Stage(x.request)
		if err != nil {
			kind := review.FailureOverload
			if errors.Is(err, errNoStager) {
				kind = review.FailureUnavailable
			}
			for i := range b.Calls {
				done(i, review.Fail(kind, "%w", err))
			}
			return func(int) {}
		}
		x.hold = hold
	}
	var ask Ask
	if b.Calls[0].Hook.Route.Stream {
		ask = func(i int, done func(review.Result)) func() {
			one := *b
			one.Calls = b.Calls[i : i+1]
			cancel := x.dispatcher.options.Streams.Start(ctx, &one, func(_ int, r review.Result) { done(r) })
			return func() { cancel(0) }
		}
	}
	return x.hold.Start(ctx, b.Calls, b.Request.GetObject().GetRaw(), x.pendingFrom(b.Calls[0].Hook), ask, done)
}

// pendingFrom returns an initializer whose turn it is, and those behind it that apply to the object as it is now.
func (x *run) pendingFrom(h *match.Hook) []string {
	var pending []string
	for _, later := range x.hooks[slices.Index(x.hooks, h):] {
		if !later.Initializes() {
			break
		}
		if later == h || later.Decides() && later.ShouldCall(x.reviewContext.lookups, x.reviewContext.attributes).Match {
			pending = append(pending, later.ID.Pending())
		}
	}
	return pending
}

// endHold ends the hold of the review, if there is one.
func (x *run) endHold(ctx context.Context) {
	if x.hold == nil {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
	}
	x.hold.Release(ctx)
}

// readInitializers takes the client's list of initializers off the object, if any initializers are candidates, and keeps the candidates on that list.
// A client without the verb for it is refused (SEMANTICS C49).
func (x *run) readInitializers(o *chain.Options) {
	raw := x.request.Admission.GetObject().GetRaw()
	if !bytes.Contains(raw, []byte("initializers")) {
		return
	}
	if x.request.Admission.GetOperation() == updateOperation {
		o.Refuse = x.addsInitializers(raw)
		return
	}
	if len(x.hooks) == 0 || !x.hooks[0].Initializes() {
		return
	}
	asked, stripped, err := pendingOf(raw)
	switch {
	case err != nil:
		o.Refuse = refusal(metav1.StatusReasonBadRequest, 400, "the initializers of the object cannot be read: "+err.Error())
	case stripped == nil:
	default:
		if o.Refuse = x.mayInitialize(); o.Refuse == nil {
			o.Object = stripped
			x.keepInitializers(o, asked)
		}
	}
}

// addsInitializers returns a refusal if an update adds initializers to an object that exists: ValidateInitializersUpdate of Kubernetes 1.7.
func (x *run) addsInitializers(raw []byte) *admissionv1.Status {
	initializes := func(h *match.Hook) bool { return h.Initializes() && h.Serves(x.request.Admission.GetCluster()) }
	if !slices.ContainsFunc(x.snapshot.Hooks(), initializes) {
		return nil
	}
	_, stripped, err := pendingOf(raw)
	if err == nil && stripped == nil {
		return nil
	}
	if _, before, oldErr := pendingOf(x.request.Admission.GetOldObject().GetRaw()); oldErr != nil || before != nil {
		return nil // It was created so: no initializer covered it.
	}
	return refusal(metav1.StatusReasonInvalid, 422, "the update adds initializers ("+PendingAnnotation+"), which act when an object is created: remove them")
}

// keepInitializers leaves out the initializers that the client has not named.
func (x *run) keepInitializers(o *chain.Options, asked []string) {
	x.hooks = slices.DeleteFunc(x.hooks, func(h *match.Hook) bool {
		if !h.Initializes() || slices.Contains(asked, h.ID.Name) {
			return false
		}
		if x.request.Explain {
			x.skipped = append(x.skipped, match.Skipped{
				Hook: h, Skip: match.SkipInitialized, Reason: "the client says which initializers act, and does not name it",
			})
		}
		return true
	})
	o.Hooks = x.hooks
	for _, name := range asked {
		if !slices.ContainsFunc(x.hooks, func(h *match.Hook) bool { return h.Initializes() && h.ID.Name == name }) {
			o.Refuse = refusal(metav1.StatusReasonInvalid, 422, fmt.Sprintf("no initializer %q applies to the object: remove it from the list", name))
		}
	}
}

// mayInitialize returns a refusal unless the user of the request may say which initializers act.
func (x *run) mayInitialize() *admissionv1.Status {
	request := x.request.Admission
	info, extra := request.GetUserInfo(), map[string][]string{}
	for key, values := range request.GetUserInfo().GetExtra() {
		extra[key] = values.GetItems()
	}
	resource := request.GetResource()
	cluster := x.reviewContext.cluster.Authorizer()
	if cluster == nil {
		return refusal(metav1.StatusReasonForbidden, 403, "an object may name its initializers only if its creator has the verb "+initializeVerb+
			", and the mesh cannot ask this cluster: give its Cluster a kubeconfig or a bridge")
	}
	decision, reason, err := cluster.Authorize(x.reviewContext.lookups, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: info.GetUsername(), UID: info.GetUid(), Groups: info.GetGroups(), Extra: extra},
		Verb: initializeVerb, Namespace: request.GetNamespace(), Name: request.GetName(),
		APIGroup: resource.GetGroup(), APIVersion: resource.GetVersion(), Resource: resource.GetResource(), ResourceRequest: true,
	})
	if err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	text := fmt.Sprintf("user %q may not %s %s: an object may name its initializers only if its creator has that verb",
		info.GetUsername(), initializeVerb, resource.GetResource())
	if reason != "" {
		text += ": " + reason
	}
	return refusal(metav1.StatusReasonForbidden, 403, text)
}

func refusal(reason metav1.StatusReason, code int32, message string) *admissionv1.Status {
	return &admissionv1.Status{Status: metav1.StatusFailure, Reason: string(reason), Code: code, Message: message}
}

// pendingOf returns the initializers that an object names, and the object without them; a nil object if it names none.
func pendingOf(raw []byte) (names []string, stripped []byte, err error) {
	var field *struct {
		Pending []struct {
			Name string `json:"name"`
		} `json:"pending"`
	}
	value, err := conversion.Lookup(raw, "metadata", "initializers")
	if err == nil && value != nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(value, &field)
	}
	if err != nil {
		return nil, nil, err
	}
	annotation, err := conversion.Lookup(raw, "metadata", "annotations", PendingAnnotation)
	if err != nil {
		return nil, nil, err
	}
	var remove []string
	if field != nil {
		remove = append(remove, "/metadata/initializers")
		for _, i := range field.Pending {
			names = append(names, i.Name)
		}
	}
	if annotation != nil {
		var text string
		if err = kjson.UnmarshalCaseSensitivePreserveInts(annotation, &text); err == nil {
			err = json.Unmarshal([]byte(text), &names)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("annotation %s is no JSON list of names: %w", PendingAnnotation, err)
		}
		remove = append(remove, "/metadata/annotations/initializers.portcullis.dev~1pending")
	}
	if len(remove) == 0 {
		return nil, nil, nil
	}
	type operation struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	patch := make([]operation, 0, len(remove))
	for _, path := range remove {
		patch = append(patch, operation{"remove", path})
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, nil, err
	}
	patched, err := conversion.ApplyPatch(raw, encoded)
	return names, patched.Raw, err
}
