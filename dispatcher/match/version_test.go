package match_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// laboratory is a cluster that serves every resource in the same ways, and converts by writing down the requested conversion.
type laboratory struct {
	namespaces

	ways            []conversion.ResourceKind
	equivalentError error
	convertError    error

	asked   []string // conversions
	lookups int      // of equivalents
}

func (c *laboratory) Equivalents(schema.GroupVersionResource, string) ([]conversion.ResourceKind, error) {
	c.lookups++
	return c.ways, c.equivalentError
}

func (c *laboratory) Convert(_ context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	c.asked = append(c.asked, string(object)+" to "+to.Version)
	return []byte(string(object) + "-" + to.Version), c.convertError
}

// way is a resource and its kind, whose version is the resource's.
func way(group, version, resource, kind string) conversion.ResourceKind {
	gv := schema.GroupVersion{Group: group, Version: version}
	return conversion.ResourceKind{Resource: gv.WithResource(resource), Kind: gv.WithKind(kind)}
}

// version is the version in which a hook sees a request.
func version(as *conversion.ResourceKind) string {
	if as == nil {
		return "as it came"
	}
	return as.Kind.Version
}

func pods(version string) *conversion.ResourceKind {
	w := way("", version, "pods", "Pod")
	return &w
}

func TestObjectsAreConvertedOncePerVersion(t *testing.T) {
	req := createPod()
	req.Object, req.OldObject = &admissionv1.Object{Raw: []byte("new")}, &admissionv1.Object{Raw: []byte("old")}
	cluster := &laboratory{}
	a := match.NewAttributes(req, cluster)
	in := func(a *match.Attributes, as *conversion.ResourceKind, wantObject, wantOld string) {
		t.Helper()
		object, old, err := a.In(t.Context(), as)
		if err != nil || string(object) != wantObject || string(old) != wantOld {
			t.Errorf("got %q, %q and error %v, want %q and %q", object, old, err, wantObject, wantOld)
		}
	}
	for range 2 {
		in(a, nil, "new", "old")
		in(a, pods("v1"), "new", "old")
		in(a, pods("v2"), "new-v2", "old-v2")
		in(a, pods("v3"), "new-v3", "old-v3")
		in(a.WithObject([]byte("newer")), pods("v2"), "newer-v2", "old-v2")
	}
	want := []string{"new to v2", "old to v2", "new to v3", "old to v3", "newer to v2", "newer to v2"}
	if !slices.Equal(cluster.asked, want) {
		t.Errorf("conversions: %q, want %q", cluster.asked, want)
	}
}

func TestAbsentObjectsAreAbsentInEveryVersion(t *testing.T) {
	req := createPod()
	req.Object, req.OldObject = nil, &admissionv1.Object{Raw: []byte("null")}
	object, old, err := match.NewAttributes(req, match.Unknown{}).In(t.Context(), pods("v2"))
	if object != nil || old != nil || err != nil {
		t.Errorf("got %q, %q and error %v", object, old, err)
	}
}

func TestAConversionThatFailsFailsForEveryHook(t *testing.T) {
	cluster := &laboratory{convertError: errors.New("no such version")}
	a := match.NewAttributes(createPod(), cluster)
	for range 2 {
		if object, old, err := a.In(t.Context(), pods("v2")); !errors.Is(err, cluster.convertError) || object != nil || old != nil {
			t.Errorf("got %q, %q and error %v", object, old, err)
		}
	}
	if len(cluster.asked) != 1 {
		t.Errorf("conversions: %q", cluster.asked)
	}
}

// TestManyHooksMayAskForVersionsAtOnce has a reason only under the race detector.
func TestManyHooksMayAskForVersionsAtOnce(t *testing.T) {
	req := requestBy(deployments()[3])
	req.Object = &admissionv1.Object{Raw: []byte(`{"kind":"Deployment","apiVersion":"apps/v1beta1","metadata":{"name":"d"}}`)}
	req.OldObject = req.GetObject()
	o := validating("", "a", "one.io", "two.io", "three.io")
	equivalent := admissionregistrationv1.Equivalent
	for i := range o.Validating.Webhooks {
		w := &o.Validating.Webhooks[i]
		w.MatchPolicy, w.Rules = &equivalent, rule("*", "apps", []string{"v1", "v1beta2", "v1beta1"}[i], "deployments")
		w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: `object.apiVersion == oldObject.apiVersion`}}
	}
	snapshot := compile(t, match.Input{Objects: []match.Object{o}})
	ways := fixed{deployments()[1].Resource, deployments()[2].Resource, deployments()[3].Resource}
	a := match.NewAttributes(req, cluster{served: served{EquivalentResourceMapper: ways}})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			hooks := snapshot.Candidates("", validate, a)
			for i, h := range hooks {
				d := h.ShouldCall(t.Context(), a)
				if want := []string{"v1", "v1beta2", "as it came"}[i]; !d.Match || version(d.As) != want {
					t.Errorf("%s: %+v, want %s", h.ID.Name, d, want)
				}
				if object, old, err := a.In(t.Context(), d.As); len(object) == 0 || len(old) == 0 || err != nil {
					t.Errorf("%s: %q, %q and error %v", h.ID.Name, object, old, err)
				}
			}
			if len(hooks) != 3 {
				t.Errorf("%d hooks", len(hooks))
			}
		})
	}
	all.Wait()
}
