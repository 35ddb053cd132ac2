package match_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// converter is a cluster that converts by writing down what it was asked.
type converter struct {
	match.Unknown

	asked []string
	err   error
}

func (c *converter) Convert(_ context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	c.asked = append(c.asked, string(object)+" to "+to.Version)
	return []byte(string(object) + "-" + to.Version), c.err
}

func version(v string) *conversion.ResourceKind {
	return &conversion.ResourceKind{
		Resource: schema.GroupVersionResource{Version: v, Resource: "pods"}, Kind: schema.GroupVersionKind{Version: v, Kind: "Pod"},
	}
}

func TestObjectsAreConvertedOncePerVersion(t *testing.T) {
	req := createPod()
	req.Object, req.OldObject = &admissionv1.Object{Raw: []byte("new")}, &admissionv1.Object{Raw: []byte("old")}
	cluster := &converter{}
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
		in(a, version("v1"), "new", "old")
		in(a, version("v2"), "new-v2", "old-v2")
		in(a, version("v3"), "new-v3", "old-v3")
		in(a.WithObject([]byte("newer")), version("v2"), "newer-v2", "old-v2")
	}
	want := []string{"new to v2", "old to v2", "new to v3", "old to v3", "newer to v2", "newer to v2"}
	if !slices.Equal(cluster.asked, want) {
		t.Errorf("conversions: %q, want %q", cluster.asked, want)
	}
}

func TestAbsentObjectsAreAbsentInEveryVersion(t *testing.T) {
	req := createPod()
	req.Object, req.OldObject = nil, &admissionv1.Object{Raw: []byte("null")}
	object, old, err := match.NewAttributes(req, match.Unknown{}).In(t.Context(), version("v2"))
	if object != nil || old != nil || err != nil {
		t.Errorf("got %q, %q and error %v", object, old, err)
	}
}

func TestAConversionThatFailsFailsForEveryHook(t *testing.T) {
	cluster := &converter{err: errors.New("no such version")}
	a := match.NewAttributes(createPod(), cluster)
	for range 2 {
		if object, old, err := a.In(t.Context(), version("v2")); !errors.Is(err, cluster.err) || object != nil || old != nil {
			t.Errorf("got %q, %q and error %v", object, old, err)
		}
	}
	if len(cluster.asked) != 1 {
		t.Errorf("conversions: %q", cluster.asked)
	}
}
