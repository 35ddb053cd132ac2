package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// follower follows the objects of one cluster. One goroutine uses it.
type follower struct {
	cluster string
	follow  *kinds.Follow // nil if the originals are given back
	mesh    Mesh
	reach   *reach
	client  dynamic.Interface
	log     *slog.Logger
	now     func() time.Time
	leads   func() bool   // whether this dispatcher still holds the Lease
	lag     time.Duration // of Options

	objects  map[config.Key]*followed     // by the key of the copy
	entries  map[types.UID]*touch.Rewrite // last changes of the entries of the cluster
	failedAt time.Time                    // when a later write of entries last failed
	pending  bool                         // whether entries or originals are still to be written once more
}

// followed is the memory about one object.
type followed struct {
	origin      string    // KIND/NAME in the cluster
	state       State     // as it was reported last
	message     string    // likewise
	on          time.Time // since when it has been seen on; zero if it is off
	acted       string    // resource version that the last patch was made for: the watch is behind while it has this one
	off         bool      // whether this follower switched it off, and did not switch it on since
	offSince    time.Time // when it did
	drops       int       // how often its owner has switched it on since it was last stable
	heldUntil   time.Time // until then it stays on
	refused     string    // why the mesh refused the copy; empty if it did not
	refusedCopy *pair     // the copy that it refused
	refusedAt   time.Time // when
	failedAt    time.Time // when a step last failed
	change      touch.Rewrite
	checked     types.UID // the original for which a dry run of the patch was accepted
	view        *view     // of this round
}

// view is one object at one moment.
type view struct {
	situation

	original *unstructured.Unstructured // nil if it is gone
	webhooks []map[string]any
	wanted   *pair        // nil if it is not to be followed
	reason   string       // why not, if it is selected
	checking bool         // whether it is reached is not known yet
	stored   []config.Key // its documents in the mesh
	pending  bool         // whether it is still to be written once more
}

// round looks at all objects once and takes the next step of each, for as long as this dispatcher leads: steps may take longer than the Lease
// lasts, and two dispatchers would undo each other's steps. First come the steps that make an API server call a hook again.
// It returns the states of all objects.
func (f *follower) round(ctx context.Context, selector labels.Selector, objects []*observed, live Live) []ObjectStatus {
	f.observe(ctx, selector, objects, live)
	keys := slices.SortedFunc(maps.Keys(f.objects), config.Key.Compare)
	for _, urgent := range []bool{true, false} {
		for _, key := range keys {
			o := f.objects[key]
			step := o.view.next()
			if ctx.Err() != nil || !f.leads() || urgent != (step == SwitchOn) || !urgent && f.now().Sub(o.failedAt) < failurePause {
				continue
			}
			err := f.take(ctx, o, step)
			if err != nil {
				o.failedAt = f.now()
			}
			f.report(o, step, err)
		}
	}
	var all []ObjectStatus
	for _, key := range keys {
		o := f.objects[key]
		if o.view.original == nil && len(o.view.stored) == 0 || !o.view.selectedOrCopied() {
			delete(f.objects, key)
			f.reach.forget(key)
			continue
		}
		all = append(all, ObjectStatus{Object: o.origin, Copy: key, State: o.state, Message: o.message})
	}
	return all
}

// selectedOrCopied reports whether there is anything to follow, or to end.
func (v *view) selectedOrCopied() bool {
	return v.wanted != nil || v.reason != "" || len(v.stored) > 0 || v.exists && (v.conditions != On || v.pending)
}

// observe makes the views of all objects: the originals, and those that the mesh has copies of.
func (f *follower) observe(ctx context.Context, selector labels.Selector, objects []*observed, live Live) {
	for _, o := range f.objects {
		o.view = &view{}
	}
	for _, original := range objects {
		if _, ours := registration.MadeFor(original); ours {
			continue
		}
		key, _ := copyKeys(f.cluster, original.GetKind(), original.GetName())
		webhooks, err := webhooksOf(original.Unstructured)
		v := &view{original: original.Unstructured, webhooks: webhooks}
		v.exists, v.conditions = true, conditionsOf(webhooks)
		selected := selector.Matches(labels.Set(original.GetLabels()))
		_, marked := original.GetAnnotations()[touch.Annotation]
		if !selected && v.conditions == On && !marked && f.objects[key] == nil && len(copiesOf(live, f.cluster, key, original.GetName())) == 0 {
			continue
		}
		o := f.object(key, original.GetKind()+"/"+original.GetName())
		o.view = v
		switch {
		case !selected:
		case original.unkept != "":
			v.reason = original.unkept
		case err != nil:
			v.reason = err.Error()
		default:
			v.wanted, v.reason = f.copyOf(original.Unstructured, webhooks)
		}
	}
	for key, name := range live.copied(f.cluster) {
		f.object(key, key.Kind+"/"+name)
	}
	for key, o := range f.objects {
		_, name, _ := strings.Cut(o.origin, "/")
		o.view.stored = copiesOf(live, f.cluster, key, name)
	}
	f.limit()
	unknown := f.writeEntriesAgain(ctx, objects)
	f.pending = len(unknown) > 0
	for key, o := range f.objects {
		o.view.known = !unknown[key.Kind]
		f.judge(ctx, key, o, objects, live)
		f.pending = f.pending || o.view.pending
	}
}

// tracked are the originals of which there are copies, or which the last round looked at. Some are named twice.
func (f *follower) tracked(live *Live) []reference {
	var all []reference
	for key, name := range live.copied(f.cluster) {
		all = append(all, reference{key.Kind, name})
	}
	for key, o := range f.objects {
		_, name, _ := strings.Cut(o.origin, "/")
		all = append(all, reference{key.Kind, name})
	}
	return all
}

// copyOf makes the documents that stand for an original, or the reason why it is not followed.
func (f *follower) copyOf(original *unstructured.Unstructured, webhooks []map[string]any) (p *pair, reason string) {
	if reason := unlistedHost(webhooks, f.follow); reason != "" {
		return nil, reason
	}
	p, err := copyOf(f.cluster, original)
	if err != nil {
		return nil, err.Error()
	}
	return p, ""
}

func (f *follower) object(key config.Key, origin string) *followed {
	o := f.objects[key]
	if o == nil {
		o = &followed{origin: origin, view: &view{}, change: touch.Rewrite{Delay: f.lag}}
		f.objects[key] = o
	}
	return o
}

// limit refuses the objects beyond the bounds. Followed objects go first.
func (f *follower) limit() {
	keys := slices.SortedFunc(maps.Keys(f.objects), func(a, b config.Key) int {
		if x, y := len(f.objects[a].view.stored) > 0, len(f.objects[b].view.stored) > 0; x != y {
			if x {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	count, size := 0, 0
	for _, key := range keys {
		v := f.objects[key].view
		if v.wanted == nil {
			continue
		}
		switch n := v.wanted.size(); {
		case count == kinds.MaxFollowed:
			v.wanted, v.reason = nil, fmt.Sprintf("at most %d objects of a cluster are followed: select fewer", kinds.MaxFollowed)
		case size+n > kinds.MaxFollowedBytes:
			v.wanted, v.reason = nil, fmt.Sprintf("the copies of a cluster have at most %d bytes together: select fewer objects", kinds.MaxFollowedBytes)
		default:
			count, size = count+1, size+n
		}
	}
}

// judge completes the situation of an object.
func (f *follower) judge(ctx context.Context, key config.Key, o *followed, objects []*observed, live Live) {
	v, now := o.view, f.now()
	v.copied = len(v.stored) > 0
	if v.wanted != nil {
		if reason := f.refusal(ctx, o, live); reason != "" {
			v.reason, v.wanted = reason, nil
		}
	}
	v.situation.wanted = v.wanted != nil
	if p := v.wanted; p != nil {
		hooks, route := live.Objects[p.hooks.Key], live.Objects[p.route.Key]
		v.current = same(hooks.Manifest, p.hooks.Manifest) && same(route.Manifest, p.route.Manifest)
		v.copied = hooks.Manifest != nil && route.Manifest != nil
		v.reshaped = v.copied && !v.current && reshaped(hooks.Manifest, p.hooks.Manifest)
		v.inForce = v.current && live.Everywhere(p.hooks.Key) && live.Everywhere(p.route.Key)
	}
	v.covered = v.copied && covers(live.Snapshot, f.cluster, key, isEmpty(live.Objects, key), objects)
	if !v.exists {
		return
	}
	if v.conditions != On {
		o.on = time.Time{}
	} else if o.on.IsZero() {
		o.on = now
	}
	v.again = o.change.Due(v.original, v.mark(), now)
	v.pending = o.change.Pending(v.original, v.mark())
	v.settled = !o.on.IsZero() && now.Sub(o.on) >= cmp.Or(settleLags*f.lag, SettleTime) && !v.pending
	f.watchOwner(o, now)
	v.held = now.Before(o.heldUntil)
}

// watchOwner counts how often the owner of an original switches it on. Each time in a row it stays on for longer, so that two
// writers that know nothing of each other do not write without end.
func (f *follower) watchOwner(o *followed, now time.Time) {
	v := o.view
	switch {
	case v.original.GetResourceVersion() == o.acted: // the watch is behind our own patch
	case o.off && v.conditions != Off:
		o.off = false
		if now.Sub(o.offSince) > MaxHold {
			o.drops = 0
		}
		if o.drops++; o.drops > 1 {
			o.heldUntil = now.Add(min(FirstHold<<min(o.drops-2, 16), MaxHold))
		}
		f.log.Info("the owner of a followed object has switched it on again", "object", o.origin, "times", o.drops, "until", o.heldUntil)
	}
}

// refusal is why an object is not followed that could be; empty if it is.
func (f *follower) refusal(ctx context.Context, o *followed, live Live) string {
	v := o.view
	if o.refused != "" && f.now().Sub(o.refusedAt) < RetryInterval && same(o.refusedCopy.hooks.Manifest, v.wanted.hooks.Manifest) {
		return o.refused
	}
	o.refused = ""
	for _, d := range []Document{v.wanted.hooks, v.wanted.route} {
		if other, ok := live.Objects[d.Key]; ok && !isCopyOf(&other, f.cluster, v.original.GetName()) {
			return fmt.Sprintf("the mesh has another %s: remove or rename it", d.Key)
		}
	}
	before, copied := live.Objects[v.wanted.hooks.Key]
	if copied && sameAddresses(before.Manifest, v.wanted.hooks.Manifest) {
		return ""
	}
	reason, checking := f.reach.check(ctx, v.wanted.hooks.Key, addressesOf(v.webhooks))
	v.checking = checking
	return reason
}

// refuse remembers why a copy cannot be.
func (o *followed) refuse(reason string, at time.Time) {
	o.refused, o.refusedCopy, o.refusedAt = reason, o.view.wanted, at
}

// take takes a step. A refusal of the mesh is remembered, and is no error.
func (f *follower) take(ctx context.Context, o *followed, step Step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	v := o.view
	if (step == SwitchOn || step == SwitchOff) && v.original.GetResourceVersion() == o.acted {
		return nil // the watch is behind
	}
	switch step {
	case WriteCopy:
		if v.checking {
			return nil
		}
		return f.writeCopy(ctx, o)
	case RemoveCopy:
		return f.mesh.Remove(ctx, f.cluster, v.stored)
	case SwitchOff:
		return f.switchOff(ctx, o)
	case SwitchOn:
		return f.switchOn(ctx, o)
	case WriteAgain:
		return f.writeAgain(ctx, v.original, v.mark(), &o.change)
	case Nothing:
	}
	return nil
}

func (f *follower) writeCopy(ctx context.Context, o *followed) error {
	v := o.view
	if o.checked != v.original.GetUID() {
		if err := f.patchOff(ctx, v, true); err != nil {
			return f.refuseOr(o, err)
		}
		o.checked = v.original.GetUID()
	}
	err := f.mesh.Write(ctx, f.cluster, []Document{v.wanted.route, v.wanted.hooks})
	return f.refuseOr(o, err)
}

// refuseOr remembers an error that means that the object cannot be followed as it is, and returns any other.
func (f *follower) refuseOr(o *followed, err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		o.refuse(refused.Error(), f.now())
		return nil
	}
	return err
}

func (f *follower) switchOff(ctx context.Context, o *followed) error {
	if err := f.patchOff(ctx, o.view, false); err != nil {
		return f.refuseOr(o, err)
	}
	o.acted, o.off, o.offSince = o.view.original.GetResourceVersion(), true, f.now()
	return nil
}

// errNoConditions is the error about an API server that does not know matchConditions.
var errNoConditions = &RefusedError{Reason: "the API server drops matchConditions: objects are followed from Kubernetes 1.28 on"}

// patchOff switches an original off, and sees that it is. The error is a RefusedError if the API server will not have it.
func (f *follower) patchOff(ctx context.Context, v *view, dryRun bool) error {
	patch, err := offPatch(v.original, v.webhooks)
	if err != nil {
		return err
	}
	o := metav1.PatchOptions{FieldManager: FieldManager}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	after, err := f.client.Resource(resourceOf(v.original.GetKind())).Patch(ctx, v.original.GetName(), types.ApplyPatchType, patch, o)
	switch {
	case err != nil && strings.Contains(err.Error(), "matchConditions: field not declared in schema"):
		return errNoConditions
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return &RefusedError{Reason: "the API server does not have its webhooks switched off: " + err.Error()}
	case apierrors.IsConflict(err):
		return fmt.Errorf("another writer was first: %w", err)
	case err != nil:
		return err
	}
	webhooks, err := webhooksOf(after)
	if err != nil {
		return err
	}
	if len(webhooks) > 0 && conditionsOf(webhooks) != Off {
		return errNoConditions
	}
	return nil
}

func (f *follower) switchOn(ctx context.Context, o *followed) error {
	v := o.view
	patch, err := onPatch(v.original, v.webhooks)
	if err != nil {
		return err
	}
	_, err = f.client.Resource(resourceOf(v.original.GetKind())).
		Patch(ctx, v.original.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return err
	}
	o.acted, o.off = v.original.GetResourceVersion(), false
	return nil
}
