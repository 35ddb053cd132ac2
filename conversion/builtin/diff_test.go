package builtin_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// older is a Pod as an API server wrote it that knew fewer defaults than our types, and wrote more empty fields.
const older = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","creationTimestamp":null},"spec":{"containers":[{"name":"main","image":"main:1","resources":{},"tty":false}],"volumes":[]},"status":{}}`

func TestThePatchOfAllHooksHoldsWhatTheyChangedAndNothingElse(t *testing.T) {
	cases := map[string]struct {
		object  string
		patches []string
		want    string
	}{
		"nothing": {older, nil, ``},
		"labels": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b","c":"d"}}]`,
		},
		"a default that the API server does not know changes": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"replace","path":"/spec/restartPolicy","value":"Never"}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/spec/restartPolicy","value":"Never"}]`,
		},
		"a field that was written empty is filled": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"add","path":"/spec/volumes","value":[{"name":"v","emptyDir":{}}]}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/spec/volumes/0","value":{"emptyDir":{},"name":"v"}}]`,
		},
		"one hook undoes what another did": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"remove","path":"/metadata/labels"}]`}, ``,
		},
		"a hook takes something away": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"remove","path":"/metadata/name"}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"remove","path":"/metadata/name"}]`,
		},
		"a newer cluster": {
			newer, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"replace","path":"/spec/containers/0/image","value":"main:2"}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"replace","path":"/spec/containers/0/image","value":"main:2"}]`,
		},
		"the last hook of a newer cluster adds a field that we do not know": {
			older, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"add","path":"/spec/containers/0/turbo","value":1.50}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/spec/containers/0/turbo","value":1.50}]`,
		},
		"the first hook of a newer cluster adds a field that we do not know": {
			older, []string{`[{"op":"add","path":"/spec/containers/0/turbo","value":1.50}]`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/spec/containers/0/turbo","value":1.50}]`,
		},
		"a field that we do not know goes": {
			newer, []string{`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"remove","path":"/spec/containers/0/turbo"}]`},
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"remove","path":"/spec/containers/0/turbo"}]`,
		},
		"a custom resource": {
			`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","creationTimestamp":null},"size":1.50}`,
			[]string{`[{"op":"add","path":"/size2","value":1}]`, `[{"op":"remove","path":"/size"}]`},
			`[{"op":"remove","path":"/size"},{"op":"add","path":"/size2","value":1}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := builtin.New(builtin.Options{})
			object := []byte(tc.object)
			for _, patch := range tc.patches {
				var err error
				if object, _, err = c.Apply(object, []byte(patch)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := c.Diff([]byte(tc.object), object)
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, []byte(tc.want), got)
		})
	}
}

func TestADefaultThatFollowsFromAChangeIsInThePatchIfItWouldNotFollowFromIt(t *testing.T) {
	// The image decides the default of imagePullPolicy, and the hook sets the default of the other image.
	object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"main"}]}}`
	c := builtin.New(builtin.Options{})
	result, _, err := c.Apply([]byte(object), []byte(`[{"op":"replace","path":"/spec/containers/0","value":{"name":"main","image":"main:1","imagePullPolicy":"Always"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := c.Diff([]byte(object), result)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(patch, []byte(`Always`)) {
		t.Errorf("patch %s", patch)
	}
	equalJSON(t, result, asServed(t, string(apply(t, []byte(object), patch))))
}

func TestThePatchOfRandomHooksAppliesToTheRequestAndMakesTheSameObject(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := builtin.New(builtin.Options{})
	seeds := []string{older, pod, string(asServed(t, pod)), string(asServed(t, deployment))}
	changed := 0
	for i := range 4000 {
		from := []byte(seeds[i%len(seeds)])
		object := from
		for range 2 {
			if result, _, err := c.Apply(object, []byte(mutation(r, tree(t, object)))); err == nil {
				object = result
			}
		}
		patch, err := c.Diff(from, object)
		if err != nil {
			t.Fatal(err)
		}
		if patch == nil {
			continue
		}
		changed++
		got, want := asServed(t, string(apply(t, from, patch))), asServed(t, string(object))
		if !bytes.Equal(got, want) {
			t.Fatalf("of %s\npatch %s\nmakes %s\nwant  %s", from, patch, got, want)
		}
	}
	if changed < 1000 {
		t.Errorf("only %d objects were changed", changed)
	}
}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"i:2","ports":[{"containerPort":80}]}]}}}}`

func TestNothingThatARandomHookWritesIsLost(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := builtin.New(builtin.Options{})
	seeds := []string{older, newer, string(asServed(t, pod)), string(asServed(t, deployment))}
	applied := 0
	for i := range 4000 {
		object := []byte(seeds[i%len(seeds)])
		patch := []byte(mutation(r, tree(t, object)))
		result, _, err := c.Apply(object, patch)
		if err != nil {
			continue
		}
		applied++
		if path := lost(tree(t, apply(t, object, patch)), tree(t, result), ""); path != "" {
			t.Fatalf("%s is lost\nof %s\npatch %s\nmakes %s", path, object, patch, result)
		}
	}
	if applied < 800 {
		t.Errorf("only %d patches fit", applied)
	}
}

// lost is the path of a value of from that to lacks. Values may be written otherwise, and empty values may go.
func lost(from, to any, at string) string {
	switch from := from.(type) {
	case map[string]any:
		t, _ := to.(map[string]any)
		for name, v := range from {
			if path := lost(v, t[name], at+"/"+name); path != "" {
				return path
			}
		}
		return ""
	case []any:
		t, _ := to.([]any)
		for i, v := range from {
			if i >= len(t) {
				return at
			}
			if path := lost(v, t[i], at+"/"+strconv.Itoa(i)); path != "" {
				return path
			}
		}
		return ""
	case nil:
		return ""
	}
	if to == nil && from != "" && from != false && from != 0.0 {
		return at
	}
	return ""
}
