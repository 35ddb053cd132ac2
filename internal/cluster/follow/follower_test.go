package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// world is a cluster and a mesh, and the follower between them. It belongs to one goroutine.
type world struct {
	*testing.T
	follower *follower
	selector labels.Selector
	now      time.Time
	version  int

	originals map[string]*unstructured.Unstructured // by KIND/NAME, as the API server has them
	entries   []*unstructured.Unstructured
	drops     bool // whether the API server drops matchConditions
	patchErr  error

	objects  map[config.Key]config.Object // of the mesh
	compiled *match.Snapshot              // of the objects in of
	of       map[config.Key]config.Object
	behind   bool  // whether another dispatcher has not got the latest
	refuse   error // of writes
	writes   int
	again    int  // later writes of originals and entries
	lost     bool // the Lease
	reachErr error
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), selector: labels.Everything(),
		originals: map[string]*unstructured.Unstructured{}, objects: map[config.Key]config.Object{},
	}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := w.patched(a.(clienttesting.PatchActionImpl))
		return true, o, err
	})
	clock := func() time.Time { return w.now }
	w.follower = &follower{
		cluster: "c", follow: &kinds.Follow{WebhookHosts: []string{"hooks.example.com"}}, mesh: w, client: client, log: slog.New(slog.DiscardHandler), now: clock, leads: func() bool { return !w.lost },
		objects: map[config.Key]*followed{},
		reach: &reach{
			now: clock, changed: make(chan struct{}, 1), checks: map[config.Key]*check{},
			ask: func(context.Context, *admissionregistrationv1.WebhookClientConfig) error {
				return w.reachErr
			},
		},
	}
	return w
}

// patched is the API server's part of a patch.
func (w *world) patched(a clienttesting.PatchActionImpl) (*unstructured.Unstructured, error) {
	if w.patchErr != nil {
		return nil, w.patchErr
	}
	kind := validatingKind
	if strings.HasPrefix(a.GetResource().Resource, "mutating") {
		kind = mutatingKind
	}
	o := w.originals[kind+"/"+a.GetName()].DeepCopy()
	if a.GetPatchType() == types.JSONPatchType {
		return w.put(w.jsonPatched(o, a.GetPatch())), nil
	}
	if a.GetPatchType() == types.MergePatchType {
		return w.mergePatched(kind, a.GetName(), a.GetPatch()), nil
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(a.GetPatch(), &applied.Object); err != nil {
		w.Fatal(err)
	}
	if applied.GetResourceVersion() != o.GetResourceVersion() || applied.GetUID() != o.GetUID() {
		w.Errorf("a patch for version %s of %s, which has %s", applied.GetResourceVersion(), a.GetName(), o.GetResourceVersion())
	}
	webhooks, err := webhooksOf(o)
	if err != nil {
		w.Fatal(err)
	}
	if !w.drops {
		for _, webhook := range withoutConditions(webhooks) {
			conditions, _ := webhook["matchConditions"].([]any)
			webhook["matchConditions"] = append(conditions, map[string]any{"name": config.FollowedCondition, "expression": config.FollowedExpression})
		}
		w.set(o, webhooks)
	}
	if len(a.PatchOptions.DryRun) > 0 {
		return o, nil
	}
	return w.put(o), nil
}

func (w *world) jsonPatched(o *unstructured.Unstructured, data []byte) *unstructured.Unstructured {
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		w.Fatal(err)
	}
	before, err := o.MarshalJSON()
	if err != nil {
		w.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		w.Fatal(err)
	}
	o = &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(after); err != nil {
		w.Fatal(err)
	}
	return o
}

// mergePatched patches the metadata of an original, or of entries.
func (w *world) mergePatched(kind, name string, data []byte) *unstructured.Unstructured {
	all := append(slices.Collect(maps.Values(w.originals)), w.entries...)
	o := all[slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })]
	before, err := o.MarshalJSON()
	if err != nil {
		w.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		w.Fatal(err)
	}
	patched := &unstructured.Unstructured{}
	if err := patched.UnmarshalJSON(after); err != nil {
		w.Fatal(err)
	}
	w.again++
	o.Object["metadata"] = patched.Object["metadata"]
	w.version++
	o.SetResourceVersion(fmt.Sprint(w.version))
	return o
}

func (w *world) set(o *unstructured.Unstructured, webhooks []map[string]any) {
	list := make([]any, len(webhooks))
	for i := range webhooks {
		list[i] = webhooks[i]
	}
	o.Object["webhooks"] = list
}

// put stores an object, in a new version. Its generation counts changes of webhooks.
func (w *world) put(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.version++
	o.SetGeneration(1)
	if before := w.originals[o.GetKind()+"/"+o.GetName()]; before != nil {
		o.SetGeneration(before.GetGeneration())
		if !reflect.DeepEqual(before.Object["webhooks"], o.Object["webhooks"]) {
			o.SetGeneration(before.GetGeneration() + 1)
		}
	}
	o.SetResourceVersion(fmt.Sprint(w.version))
	w.originals[o.GetKind()+"/"+o.GetName()] = o
	return o
}

// add puts an original with one hook on Pods.
func (w *world) add(name string) {
	w.put(w.made(name))
}

func (w *world) made(name string) *unstructured.Unstructured {
	return read(w.T, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s, uid: uid-%[1]s, labels: {name: %[1]s}}
webhooks:
- name: hook.example.com
  clientConfig: {url: "https://hooks.example.com/%[1]s"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: own, expression: "true"}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, name))
}

// register makes the entries of the cluster from the hooks in force.
func (w *world) register() {
	r, err := registration.Plan(w.live().Snapshot, "c", registration.Options{URL: "https://mesh.example.com"})
	if err != nil {
		w.Fatal(err)
	}
	w.entries = nil
	for _, o := range []any{r.Mutating, r.Validating} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			w.Fatal(err)
		}
		entries := &unstructured.Unstructured{Object: content}
		entries.SetUID(types.UID("uid-" + entries.GetKind()))
		annotations := entries.GetAnnotations()
		annotations[touch.Annotation] = touch.Mark(entries)
		entries.SetAnnotations(annotations)
		w.entries = append(w.entries, entries)
	}
}

func (w *world) live() Live {
	if w.compiled == nil || !maps.EqualFunc(w.objects, w.of, func(a, b config.Object) bool { return a.Digest == b.Digest }) {
		snapshot, problems := config.Recompile(w.compiled, "r", slices.Collect(maps.Values(w.objects)))
		if problems.Err() != nil {
			w.Fatal(problems)
		}
		w.compiled, w.of = snapshot, w.objects
	}
	return Live{Snapshot: w.compiled, Objects: w.objects, Everywhere: func(config.Key) bool { return !w.behind }}
}

// Live implements Mesh.
func (w *world) Live(context.Context) (Live, bool, error) { return w.live(), true, nil }

// Write implements Mesh.
func (w *world) Write(_ context.Context, _ string, documents []Document) error {
	w.writes++
	if w.refuse != nil {
		return w.refuse
	}
	next := maps.Clone(w.objects)
	for _, d := range documents {
		objects, problems := configtest.Decode("d", d.Manifest)
		if problems.Err() != nil {
			return &RefusedError{Reason: problems.Err().Error()}
		}
		next[d.Key] = objects[0]
	}
	w.objects = next
	return nil
}

// Remove implements Mesh.
func (w *world) Remove(_ context.Context, _ string, keys []config.Key) error {
	next := maps.Clone(w.objects)
	for _, key := range keys {
		delete(next, key)
	}
	w.objects = next
	return nil
}

// Reach implements Mesh.
func (*world) Reach(context.Context, string, *admissionregistrationv1.WebhookClientConfig) error {
	return errors.New("the follower has its own")
}

// round is one round whose checks of addresses have ended.
func (w *world) round() map[string]ObjectStatus {
	w.Helper()
	var all []ObjectStatus
	for range 2 {
		live := w.live()
		all = w.follower.round(w.Context(), w.selector, w.observed(&live), live)
		w.follower.reach.wait.Wait()
	}
	byName := map[string]ObjectStatus{}
	for _, o := range all {
		byName[strings.TrimPrefix(o.Object, validatingKind+"/")] = o
	}
	return byName
}

// observed are the objects of the cluster as a watch keeps them.
func (w *world) observed(live *Live) []*observed {
	w.Helper()
	s := newWatched(w.T, nil, w.selector)
	for _, k := range s.kinds {
		var list []any
		for _, o := range append(slices.Collect(maps.Values(w.originals)), w.entries...) {
			if o.GetKind() != k.kind {
				continue
			}
			text, err := o.MarshalJSON()
			if err != nil {
				w.Fatal(err)
			}
			list = append(list, keeps(w.T, k, string(text)))
		}
		if err := k.Replace(list, ""); err != nil {
			w.Fatal(err)
		}
	}
	return s.all(w.follower.tracked(live))
}

// rounds are as many rounds as it takes, a moment apart.
func (w *world) rounds() map[string]ObjectStatus {
	w.Helper()
	for range 4 {
		w.round()
	}
	return w.round()
}

// is compares the state of an original.
func (w *world) is(all map[string]ObjectStatus, name string, state State, conditions Conditions, parts ...string) {
	w.Helper()
	got := all[name]
	if got.State != state {
		w.Errorf("%s is %s, want %s: %s", name, got.State, state, got.Message)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			w.Errorf("%s: %q has no %q", name, got.Message, part)
		}
	}
	webhooks, err := webhooksOf(w.originals[validatingKind+"/"+name])
	if err != nil {
		w.Fatal(err)
	}
	if now := conditionsOf(webhooks); now != conditions {
		w.Errorf("%s is %s, want %s", name, now, conditions)
	}
}

// follows adds an original, and goes on until it is followed.
func (w *world) follows(name string) {
	w.Helper()
	w.add(name)
	w.rounds()
	w.register()
	w.is(w.rounds(), name, Followed, Off)
}

func TestAFollowerWaitsForEachConditionInTurn(t *testing.T) {
	w := newWorld(t)
	w.behind = true
	w.add("a")
	w.is(w.rounds(), "a", Waiting, On, "not in force in every dispatcher")
	w.behind = false
	w.is(w.rounds(), "a", Waiting, On, "entries of the cluster do not bring")
	w.register()
	w.is(w.rounds(), "a", Followed, Off)
	if w.writes != 1 {
		t.Errorf("the copy was written %d times, want once", w.writes)
	}

	renewed := w.made("a")
	webhooks, _ := webhooksOf(w.originals[validatingKind+"/a"])
	webhooks[0]["clientConfig"].(map[string]any)["caBundle"] = "Q0E="
	w.set(renewed, webhooks)
	w.put(renewed)
	w.is(w.rounds(), "a", Followed, Off)
	if key := (config.Key{Kind: validatingKind, Name: "followed.c.a"}); !strings.Contains(string(w.objects[key].Manifest), "Q0E=") || w.writes != 2 {
		t.Errorf("after %d writes: %s", w.writes, w.objects[key].Manifest)
	}

	webhooks[0]["failurePolicy"] = "Ignore"
	widened := w.made("a")
	w.set(widened, webhooks)
	w.put(widened)
	w.is(w.rounds(), "a", Waiting, On, "entries of the cluster do not bring")
	w.register()
	w.is(w.rounds(), "a", Followed, Off)

	w.entries = nil
	w.is(w.rounds(), "a", Waiting, On, "entries of the cluster do not bring")
}

func TestTheWayBackLeavesTheCopyForAWhile(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	w.selector = labels.Nothing()
	w.is(w.rounds(), "a", Waiting, On, "removed once each API server calls the original")
	if len(w.objects) != 2 {
		t.Fatalf("the mesh has %d objects, want the copy and its route", len(w.objects))
	}
	w.now = w.now.Add(SettleTime - 1)
	w.round()
	if len(w.objects) != 2 {
		t.Fatalf("the mesh has %d objects just before the time", len(w.objects))
	}
	w.now = w.now.Add(1)
	w.lost = true
	if w.rounds(); len(w.objects) != 2 {
		t.Errorf("a follower that has lost its Lease removed the copy: another one may have switched the original off")
	}
	w.lost = false
	if all := w.rounds(); len(w.objects) != 0 || len(all) != 0 || len(w.follower.objects) != 0 {
		t.Errorf("the mesh has %d objects, and the follower %v", len(w.objects), all)
	}
	w.selector = labels.Everything()
	w.rounds()
	w.register()
	w.is(w.rounds(), "a", Followed, Off)
	delete(w.originals, validatingKind+"/a")
	if all := w.rounds(); len(w.objects) != 0 || len(all) != 0 {
		t.Errorf("after the owner has deleted it the mesh has %d objects, and the follower %v", len(w.objects), all)
	}
}

func TestOwnEntriesAreNotFollowed(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	for _, o := range w.entries {
		w.put(o)
	}
	w.entries = nil
	if all := w.rounds(); len(all) != 1 || len(w.objects) != 2 {
		t.Errorf("%v", all)
	}
}

func TestAnObjectThatCannotBeFollowedStaysOn(t *testing.T) {
	forbidden := apierrors.NewForbidden(resourceOf(validatingKind).GroupResource(), "a", errors.New("may not patch"))
	for name, tt := range map[string]struct {
		cause, mend func(*world)
		want        string
		writes      int
	}{
		"the mesh refuses it": {
			func(w *world) { w.refuse = &RefusedError{Reason: "danger-leases"} }, func(w *world) { w.refuse = nil }, "danger-leases", 1,
		},
		"its webhooks are not reached": {
			func(w *world) { w.reachErr = errors.New("no route") }, func(w *world) { w.reachErr = nil }, "webhooks[0]: no route", 0,
		},
		"the API server drops conditions": {
			func(w *world) { w.drops = true }, func(w *world) { w.drops = false }, "Kubernetes 1.28", 0,
		},
		"the mesh may not patch it": {
			func(w *world) { w.patchErr = forbidden }, func(w *world) { w.patchErr = nil }, "may not patch", 0,
		},
		"another object has the name": {
			func(w *world) {
				key := config.Key{Kind: kinds.HookRouteKind, Name: "followed.c.a.validate"}
				objects, problems := configtest.Decode("d", []byte("apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: followed.c.a.validate}\nspec: {configuration: x}\n"))
				if problems.Err() != nil {
					w.Fatal(problems)
				}
				w.objects = map[config.Key]config.Object{key: objects[0]}
			}, func(w *world) { w.objects = map[config.Key]config.Object{} }, "another HookRoute/followed.c.a.validate", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.cause(w)
			w.add("a")
			w.is(w.rounds(), "a", Refused, On, tt.want)
			w.is(w.rounds(), "a", Refused, On, tt.want)
			if w.writes != tt.writes {
				t.Errorf("%d writes, want %d", w.writes, tt.writes)
			}
			tt.mend(w)
			w.now = w.now.Add(RetryInterval)
			w.rounds()
			w.register()
			w.is(w.rounds(), "a", Followed, Off)
		})
	}
}

func TestAChangeThatIsRefusedSwitchesTheOriginalOn(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	w.refuse = &RefusedError{Reason: "not valid"}
	w.drops = false
	webhooks, _ := webhooksOf(w.originals[validatingKind+"/a"])
	webhooks[0]["rules"].([]any)[0].(map[string]any)["resources"] = []any{"secrets"}
	changed := w.made("a")
	w.set(changed, webhooks)
	w.put(changed)
	w.is(w.rounds(), "a", Refused, On, "not valid")
	w.now = w.now.Add(SettleTime)
	if w.rounds(); len(w.objects) != 0 {
		t.Errorf("the copy of before stays: %d objects", len(w.objects))
	}
}

func TestAnOwnerThatInsistsIsWaitedForLongerAndLonger(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	for i, hold := range []time.Duration{0, FirstHold, 2 * FirstHold, 4 * FirstHold} {
		w.add("a")
		all := w.rounds()
		if hold > 0 {
			w.is(all, "a", Waiting, On, fmt.Sprintf("removed the condition %d times", i+1))
			w.now = w.now.Add(hold - 1)
			w.is(w.rounds(), "a", Waiting, On)
			w.now = w.now.Add(1)
		}
		w.is(w.rounds(), "a", Followed, Off)
	}
	for range 20 {
		w.add("a")
		w.rounds()
		w.now = w.now.Add(MaxHold)
		w.is(w.rounds(), "a", Followed, Off)
	}
	w.now = w.now.Add(MaxHold + 1)
	w.rounds()
	w.add("a")
	w.is(w.rounds(), "a", Followed, Off)
}

func TestTheNumberOfFollowedObjectsIsBounded(t *testing.T) {
	w := newWorld(t)
	w.follows("z")
	for i := range kinds.MaxFollowed {
		w.add(fmt.Sprintf("n%02d", i))
	}
	w.rounds()
	w.register()
	all := w.rounds()
	last := fmt.Sprintf("n%02d", kinds.MaxFollowed-1)
	w.is(all, "z", Followed, Off) // it was there first
	w.is(all, fmt.Sprintf("n%02d", kinds.MaxFollowed-2), Followed, Off)
	w.is(all, last, Refused, On, fmt.Sprintf("at most %d objects", kinds.MaxFollowed))
}

func TestTheBytesOfFollowedObjectsAreBounded(t *testing.T) {
	citest.Sequential(t)
	for _, more := range []int{0, 1} {
		w := newWorld(t)
		o := w.made("a")
		p := mustCopy(t, "c", o)
		webhooks, _ := webhooksOf(o)
		webhooks[0]["clientConfig"].(map[string]any)["url"] = "https://hooks.example.com/a" + strings.Repeat("x", kinds.MaxFollowedBytes-p.size()+more)
		w.set(o, webhooks)
		w.put(o)
		w.rounds()
		w.register()
		if all := w.rounds(); more == 0 {
			w.is(all, "a", Followed, Off)
		} else {
			w.is(all, "a", Refused, On, "bytes")
		}
	}
}

// A cluster may make and delete objects without end: the checks of their addresses go with them.
func TestTheAddressesOfAnObjectThatIsGoneAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.reachErr = errors.New("no route")
	w.add("a")
	w.is(w.rounds(), "a", Refused, On, "no route")
	clear(w.originals)
	w.rounds()
	if n := len(w.follower.reach.checks); n > 0 {
		t.Errorf("the addresses of %d objects are remembered, want none", n)
	}
}
