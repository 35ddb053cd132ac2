package cluster

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// allocated is how many bytes f allocates, whether they are garbage by then or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// served is a CustomResourceDefinition that the API server serves, with a kind of its own.
func servedDefinition(name, kind string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: name, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue}},
		},
	}
}

// offline is a connection that asks for nothing.
func offline() *clusterConn {
	return newConn(&clients{config: &rest.Config{}}, nil, slog.New(slog.DiscardHandler), 0)
}

// TestAnEventCostsTheSameWhateverElseIsThere: an API server may send small events without an end after one long list.
func TestAnEventCostsTheSameWhateverElseIsThere(t *testing.T) {
	citest.Sequential(t)
	const events, most = 1000, 16 << 10 // bytes for each event
	c := offline()
	var namespaces, definitions []any
	for n := range 90_000 {
		namespaces = append(namespaces, object(fmt.Sprint(n), nil, 1))
	}
	for n := range 5_000 {
		definitions = append(definitions, servedDefinition(fmt.Sprint("d", n), fmt.Sprint("D", n)))
	}
	for name, of := range map[string]struct {
		cache interface {
			Replace(objs []any, version string) error
			Update(obj any) error
			Delete(obj any) error
		}
		all []any
	}{
		"namespaces": {&c.namespaces.cache, namespaces}, "CustomResourceDefinitions": {&c.crds, definitions}, "APIServices": {&c.apiServices, namespaces},
	} {
		if err := of.cache.Replace(of.all, "1"); err != nil {
			t.Fatal(err)
		}
		bytes := allocated(func() {
			for n := range events {
				change := of.cache.Update
				if n%2 == 1 {
					change = of.cache.Delete
				}
				if err := change(of.all[n%100]); err != nil {
					t.Fatal(err)
				}
			}
		})
		if bytes/events > most {
			t.Errorf("%s: an event beside %d objects allocates %d bytes, want at most %d", name, len(of.all), bytes/events, most)
		}
	}
}

// TestDefinitionsAreFoundByTheirLastNames has the definitions of a cluster come, change their kinds and go, in events and in lists.
func TestDefinitionsAreFoundByTheirLastNames(t *testing.T) {
	c := offline()
	kinds := func() string {
		custom, err := c.definitions()
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, kind := range []string{"A", "B", "C"} {
			d := custom.ofKind(schema.GroupKind{Group: "example.com", Kind: kind})
			if d == nil {
				continue
			}
			all += fmt.Sprintf("%s=%s ", kind, d.resource.Resource)
			if custom.ofResource(d.resource) != d {
				t.Errorf("%s is another one by its resource", d.resource)
			}
		}
		return all
	}
	notServed := servedDefinition("a", "A")
	notServed.Status.Conditions = nil
	for _, step := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"a list", func() error {
			return c.crds.Replace([]any{servedDefinition("a", "A"), servedDefinition("b", "B")}, "1")
		}, "A=a B=b "},
		{"a new one", func() error { return c.crds.Add(servedDefinition("c", "C")) }, "A=a B=b C=c "},
		{"one goes", func() error { return c.crds.Delete(servedDefinition("b", "B")) }, "A=a C=c "},
		{"a kind that another one had", func() error { return c.crds.Update(servedDefinition("c", "B")) }, "A=a B=c "},
		{"one is served no more", func() error { return c.crds.Update(notServed) }, "B=c "},
		{"another list", func() error {
			return c.crds.Replace([]any{servedDefinition("a", "B"), servedDefinition("b", "C")}, "2")
		}, "B=a C=b "},
		{"the same list", func() error {
			return c.crds.Replace([]any{servedDefinition("a", "B"), servedDefinition("b", "C")}, "2")
		}, "B=a C=b "},
		{"the next connection", func() error { before := c; c = offline(); c.seedFrom(before); return nil }, "B=a C=b "},
		{"a list of none", func() error { return c.crds.Replace(nil, "3") }, ""},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if got := kinds(); got != step.want {
			t.Errorf("after %s: %q, want %q", step.name, got, step.want)
		}
	}
}
