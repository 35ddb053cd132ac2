package builtin_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
)

var _ chain.Codec = (*builtin.PatchSession)(nil)

// counted is a codec and the reasons that it passed to NotKnown.
func counted() (*builtin.Codec, *[]string) {
	var reasons []string
	return builtin.New(builtin.Options{NotKnown: func(r string) { reasons = append(reasons, r) }}), &reasons
}

func TestAPatchedObjectIsDecodedAndDefaultedBeforeTheNextHookSeesIt(t *testing.T) {
	object := asServed(t, pod)
	cases := map[string]struct {
		patch   string
		want    string // a patch from the object to the wanted result
		changed bool
	}{
		"a new container gets its defaults": {
			`[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"side"}}]`,
			`[{"op":"add","path":"/spec/containers/1","value":{"name":"side","image":"side","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}}]`,
			true,
		},
		"a default that a hook takes away comes back, and is a change": {
			`[{"op":"remove","path":"/spec/restartPolicy"}]`, `[]`, true,
		},
		"a field that is set to null gets its default": {
			`[{"op":"replace","path":"/spec/dnsPolicy","value":null}]`, `[]`, true,
		},
		"what means the same is no change": {
			`[{"op":"add","path":"/spec/tolerations","value":[]}]`, `[]`, false,
		},
		"a patch that undoes itself is no change": {
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"remove","path":"/metadata/labels"}]`, `[]`, false,
		},
		"an empty patch is no change": {`[]`, `[]`, false},
		"a null patch is no change":   {`null`, `[]`, false},
		"quantities are written in one way": {
			`[{"op":"add","path":"/spec/containers/0/resources/limits","value":{"cpu":"1000m"}}]`,
			`[{"op":"replace","path":"/spec/containers/0/resources","value":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}}]`,
			true,
		},
		"the kind cannot be taken away": {
			`[{"op":"remove","path":"/kind"},{"op":"remove","path":"/apiVersion"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, reasons := counted()
			got, changed, err := c.Apply(object, []byte(tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			if changed != tc.changed {
				t.Errorf("changed is %v", changed)
			}
			equalJSON(t, apply(t, object, []byte(tc.want)), got)
			if len(*reasons) > 0 {
				t.Errorf("not known: %v", *reasons)
			}
		})
	}
}

func TestAnObjectIsReturnedItselfIfThePatchDoesNothing(t *testing.T) {
	const nothing = `[{"op":"test","path":"/spec/turbo","value":null}]`
	cases := map[string]struct{ object, patch string }{
		"no operations":                  {pod, `[]`},
		"no operations, and null":        {pod, `null`},
		"an object as it is served":      {string(asServed(t, pod)), nothing},
		"an object that is not built in": {`{"kind":"Widget","apiVersion":"example.com/v1","spec":{}}`, nothing},
		"an object that is gone":         {`{"kind":"PodSecurityPolicy","apiVersion":"policy/v1beta1","spec":{}}`, nothing},
		"a label that is there already":  {string(asServed(t, pod)), `[{"op":"replace","path":"/metadata/name","value":"p"}]`},
		"a patch that undoes itself":     {string(asServed(t, pod)), `[{"op":"add","path":"/metadata/labels","value":{}},{"op":"remove","path":"/metadata/labels"}]`},
		"an object with a field twice":   {`{"kind":"Pod","apiVersion":"v1","spec":{},"spec":{}}`, nothing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, reasons := counted()
			object := []byte(tc.object)
			got, changed, err := c.Apply(object, []byte(tc.patch))
			if err != nil || &got[0] != &object[0] {
				t.Errorf("error %v, object %s", err, got)
			}
			if changed || len(*reasons) > 0 {
				t.Errorf("changed %v, not known %v", changed, *reasons)
			}
		})
	}
}

func TestAPatchThatChangesNothingFillsInTheDefaults(t *testing.T) {
	c, _ := counted()
	for _, patch := range []string{
		`[{"op":"test","path":"/kind","value":"Pod"}]`,
		`[{"op":"replace","path":"/metadata/name","value":"p"}]`,
		`[{"op":"add","path":"/spec/tolerations","value":[]}]`,
	} {
		got, changed, err := c.Apply([]byte(pod), []byte(patch))
		if err != nil || changed {
			t.Errorf("%s: changed %v, error %v", patch, changed, err)
		}
		equalJSON(t, asServed(t, pod), got)
	}
}

func TestAnotherSpellingOfTheSameIsNoChangeButIsSeenByTheNextHook(t *testing.T) {
	c, _ := counted()
	role := `{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"r"},"rules":null}`
	got, changed, err := c.Apply([]byte(role), []byte(`[{"op":"replace","path":"/rules","value":[]}]`))
	if err != nil || changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	if want := strings.Replace(role, "null", "[]", 1); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAPatchIsAppliedToTheJSONThatTheHookSaw(t *testing.T) {
	// An older API server writes fields that ours leaves out.
	object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","creationTimestamp":null},"spec":{"containers":[{"name":"main","image":"main:1","resources":{}}]},"status":{}}`
	c, _ := counted()
	patch := `[{"op":"test","path":"/metadata/creationTimestamp","value":null},{"op":"test","path":"/status","value":{}},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`
	got, changed, err := c.Apply([]byte(object), []byte(patch))
	if err != nil || !changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	if !bytes.Contains(got, []byte(`"labels":{"a":"b"}`)) {
		t.Errorf("got %s", got)
	}
}

func TestAPatchThatDoesNotFitIsAnErrorOfTheRequestAndOneThatIsNoneOfTheHook(t *testing.T) {
	cases := map[string]struct {
		patch  string
		ofHook bool
	}{
		"no JSON":                  {`{`, true},
		"no list":                  {`{"op":"add"}`, true},
		"a test that fails":        {`[{"op":"test","path":"/kind","value":"Node"}]`, false},
		"a path that is not there": {`[{"op":"remove","path":"/metadata/labels"}]`, false},
		"a value of another type":  {`[{"op":"replace","path":"/spec/containers","value":"none"}]`, false},
		"a quantity that is none":  {`[{"op":"add","path":"/spec/containers/0/resources","value":{"limits":{"cpu":"much"}}}]`, false},
		"an unknown kind":          {`[{"op":"replace","path":"/kind","value":"Pot"}]`, false},
		"an unknown version":       {`[{"op":"replace","path":"/apiVersion","value":"v2"}]`, false},
		"a custom kind":            {`[{"op":"replace","path":"/apiVersion","value":"example.com/v1"}]`, false},
		"an internal version":      {`[{"op":"replace","path":"/apiVersion","value":"__internal"}]`, false},
		"a number for a kind":      {`[{"op":"replace","path":"/kind","value":1}]`, false},
		"a kind that is no Pod":    {`[{"op":"replace","path":"/kind","value":"Secret"},{"op":"remove","path":"/spec"}]`, false},
		"no object":                {`[{"op":"replace","path":"","value":[]}]`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, reasons := counted()
			got, changed, err := c.Apply(asServed(t, pod), []byte(tc.patch))
			if err == nil || got != nil || changed {
				t.Fatalf("got %s, changed %v, error %v", got, changed, err)
			}
			if errors.Is(err, conversion.ErrUndecodable) != tc.ofHook {
				t.Errorf("error %v", err)
			}
			if len(*reasons) > 0 {
				t.Errorf("not known: %v", *reasons)
			}
		})
	}
}

func TestAPatchToAnotherVersionOfTheSameKindIsUndone(t *testing.T) {
	c, _ := counted()
	deployment := asServed(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	got, changed, err := c.Apply(deployment, []byte(`[{"op":"replace","path":"/apiVersion","value":"apps/v1beta2"}]`))
	if err != nil || !changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	equalJSON(t, deployment, got)
}

// newer is a Pod of a cluster newer than our types.
const newer = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"main:1","turbo":{"level":9007199254740993}}],"turbo":null}}`

func TestFieldsThatOurTypesDoNotKnowGoAlong(t *testing.T) {
	const label = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`
	const side = `[{"op":"add","path":"/spec/containers/0","value":{"name":"side","image":"side","resources":{"turbo":1.50}}}]`
	cases := map[string]struct {
		object, patch string
		want          []string // is in the result
		unwanted      string   // is not
		changed       bool
	}{
		"of a newer cluster": {
			newer, label, []string{`"turbo":{"level":9007199254740993}`, `"turbo":null`, `"labels":{"a":"b"}`, `"dnsPolicy":"ClusterFirst"`}, "", true,
		},
		"of a hook": {
			string(asServed(t, pod)), side, []string{`"resources":{"turbo":1.50}`, `"imagePullPolicy":"Always"`}, "", true,
		},
		"of both": {
			newer, side, []string{`"turbo":{"level":9007199254740993}`, `"resources":{"turbo":1.50}`, `"imagePullPolicy":"Always"`}, "", true,
		},
		"and may be changed": {
			newer, `[{"op":"replace","path":"/spec/containers/0/turbo/level","value":2}]`, []string{`"turbo":{"level":2}`}, `9007`, true,
		},
		"and may be taken away": {
			newer, `[{"op":"remove","path":"/spec/containers/0/turbo"}]`, []string{`"turbo":null`}, `level`, true,
		},
		"and the object with them is no other when it is only spelled otherwise": {
			newer, `[{"op":"add","path":"/spec/tolerations","value":[]}]`, []string{`"turbo":{"level":9007199254740993}`}, `tolerations`, false,
		},
		"and go with what they are in": {
			newer, `[{"op":"replace","path":"/spec/containers","value":[{"name":"other"}]}]`, []string{`"turbo":null`}, `level`, true,
		},
		"in other case too": {
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"Spec":{"a":[{}]}}`, label, []string{`"Spec":{"a":[{}]}`}, "", true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, reasons := counted()
			got, changed, err := c.Apply([]byte(tc.object), []byte(tc.patch))
			if err != nil || changed != tc.changed {
				t.Fatalf("changed %v, error %v", changed, err)
			}
			for _, want := range tc.want {
				if !bytes.Contains(got, []byte(want)) {
					t.Errorf("no %s in %s", want, got)
				}
			}
			if tc.unwanted != "" && bytes.Contains(got, []byte(tc.unwanted)) {
				t.Errorf("%s in %s", tc.unwanted, got)
			}
			if diff := cmp.Diff([]string{builtin.ReasonUnknownFields}, *reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnObjectThatOurTypesDoNotHoldStaysJSON(t *testing.T) {
	const label = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, `,"turbo%d":%d`, i, i)
	}
	cases := map[string]struct {
		object, patch string
		reasons       []string
	}{
		"a field twice":                        {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","name":"q"}}`, label, []string{builtin.ReasonAmbiguous}},
		"a field twice by a hook":              {pod, `[{"op":"add","path":"/metadata/labels","value":{"a":"b","a":"c"}}]`, []string{builtin.ReasonAmbiguous}},
		"very many fields that nobody knows":   {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}` + many.String() + `}`, label, []string{builtin.ReasonAmbiguous}},
		"a field of another type":              {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":[]}`, label, []string{builtin.ReasonUndecodable}},
		"a kind of a newer cluster":            {`{"kind":"Pod","apiVersion":"v2","metadata":{"name":"p"}}`, label, []string{builtin.ReasonUnknownKind}},
		"a kind that is gone":                  {`{"kind":"PodSecurityPolicy","apiVersion":"policy/v1beta1","metadata":{"name":"p"}}`, label, []string{builtin.ReasonUnknownKind}},
		"an internal version":                  {`{"kind":"Deployment","apiVersion":"apps/__internal","metadata":{"name":"p"}}`, label, []string{builtin.ReasonUnknownKind}},
		"an object that does not say its kind": {`{"apiVersion":"v1","metadata":{"name":"p"}}`, label, []string{builtin.ReasonUnknownKind}},
		"a custom resource is not counted":     {`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"p"},"size":1.50}`, label, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, reasons := counted()
			got, changed, err := c.Apply([]byte(tc.object), []byte(tc.patch))
			if err != nil || !changed {
				t.Fatalf("changed %v, error %v", changed, err)
			}
			want, wantChanged, err := conversion.Raw{}.Apply([]byte(tc.object), []byte(tc.patch))
			if err != nil || !wantChanged || !bytes.Equal(want, got) {
				t.Errorf("got %s, want %s, error %v", got, want, err)
			}
			if diff := cmp.Diff(tc.reasons, *reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnObjectThatStaysJSONIsRefusedWhatKubernetesCannotReadToo(t *testing.T) {
	objects := map[string]string{
		"a custom resource":     `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"p"},"size":1.50}`,
		"a kind that is gone":   `{"kind":"PodSecurityPolicy","apiVersion":"policy/v1beta1","metadata":{"name":"p"}}`,
		"a field twice":         `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","name":"q"}}`,
		"a field of a new type": `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":[]}`,
	}
	for name, object := range objects {
		for _, patch := range []string{
			`[{"op":"remove","path":"/kind"}]`,
			`[{"op":"replace","path":"/apiVersion","value":"a/b/c"}]`,
			`[{"op":"replace","path":"/kind","value":1}]`,
		} {
			c, _ := counted()
			got, changed, err := c.Apply([]byte(object), []byte(patch))
			if err == nil || errors.Is(err, conversion.ErrUndecodable) || got != nil || changed {
				t.Errorf("%s: %s: got %s, changed %v, error %v", name, patch, got, changed, err)
			}
		}
	}
}

func TestARequestWithoutAnObjectTakesNoPatchButAnEmptyOne(t *testing.T) {
	for patch, want := range map[string]error{
		``: nil, `[]`: nil, `null`: nil,
		`[{"op":"add","path":"/a","value":1}]`:         conversion.ErrInapplicable,
		`[{"op":"replace","path":"","value":{"a":1}}]`: conversion.ErrInapplicable,
		`{`: conversion.ErrUndecodable,
	} {
		c, reasons := counted()
		got, changed, err := c.Apply(nil, []byte(patch))
		if !errors.Is(err, want) || got != nil || changed || len(*reasons) > 0 {
			t.Errorf("%s: got %s, changed %v, error %v, want %v", patch, got, changed, err, want)
		}
	}
}

func TestAPatchMustFitAnObjectOfANewerClusterToo(t *testing.T) {
	for name, patch := range map[string]string{
		"a value of another type": `[{"op":"replace","path":"/spec/containers","value":"none"}]`,
		"another kind":            `[{"op":"replace","path":"/kind","value":"Secret"}]`,
		"a custom kind":           `[{"op":"replace","path":"/apiVersion","value":"example.com/v1"}]`,
	} {
		c, reasons := counted()
		got, changed, err := c.Apply([]byte(newer), []byte(patch))
		if err == nil || got != nil || changed {
			t.Errorf("%s: got %s, changed %v, error %v, not known %v", name, got, changed, err, *reasons)
		}
	}
}

func TestTheSchemasOfACustomResourceDefinitionLoseNothing(t *testing.T) {
	// Code that reports no unknown fields decodes parts of a schema.
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"turbo":false,"spec":{"group":"example.com","scope":"Namespaced",` +
		`"names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","turbo":1,"properties":{"a.b":{"type":"array",` +
		`"items":{"type":"string","turbo":2},"default":[1.50]},"c":{"type":"object","additionalProperties":{"turbo":{"x":3}}}},"required":[]}}}]}}`
	c, reasons := counted()
	got, changed, err := c.Apply([]byte(crd), []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil || !changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	for _, want := range []string{`"turbo":false`, `"turbo":1`, `"items":{"turbo":2,"type":"string"}`, `"additionalProperties":{"turbo":{"x":3}}`, `[1.50]`, `"listKind":"WidgetList"`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if diff := cmp.Diff([]string{builtin.ReasonUnknownFields}, *reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestACustomResourceDefinitionIsABuiltInKind(t *testing.T) {
	c, reasons := counted()
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[]}}`
	got, changed, err := c.Apply([]byte(crd), []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil || !changed || len(*reasons) > 0 {
		t.Fatalf("changed %v, error %v, not known %v", changed, err, *reasons)
	}
	for _, def := range []string{`"singular":"widget"`, `"listKind":"WidgetList"`, `"conversion":{"strategy":"None"}`} {
		if !bytes.Contains(got, []byte(def)) {
			t.Errorf("no %s in %s", def, got)
		}
	}
}

func TestWhatTheAPIServerSentIsWrittenTheSameWay(t *testing.T) {
	c, _ := counted()
	object := asServed(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"html":"<a href=\"&\">\u2028</a>","z":"1","a":"2"}}`)
	got, _, err := c.Apply(object, []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Replace(object, []byte(`"name":"c"`), []byte(`"name":"c","labels":{"a":"b"}`), 1); !bytes.Equal(want, got) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAPatchChangesNothingButWhatItSaysInObjectsThatTheAPIServerSent(t *testing.T) {
	objects := map[string][]byte{}
	for _, family := range families() {
		for _, kind := range family {
			objects[kind] = convert(t, inVersion(t, at(t, family[0])), at(t, kind))
			objects[kind] = asServed(t, string(objects[kind])) // a client's, in that version
		}
	}
	delete(objects, "apps/v1beta1 DeploymentRollback") // they have no metadata
	delete(objects, "extensions/v1beta1 DeploymentRollback")
	c, reasons := counted()
	for name, object := range objects {
		got, changed, err := c.Apply(object, []byte(`[{"op":"add","path":"/metadata/generation","value":7}]`))
		if err != nil || !changed || len(*reasons) > 0 {
			t.Fatalf("%s: changed %v, error %v, not known %v", name, changed, err, *reasons)
		}
		patch, err := c.Diff(object, got)
		if err != nil || string(patch) != `[{"op":"add","path":"/metadata/generation","value":7}]` {
			t.Errorf("%s: patch %s, error %v", name, patch, err)
		}
		if raw, err := conversion.DiffPatch(object, got); err != nil || !bytes.Equal(raw, patch) {
			t.Errorf("%s: changes %s, error %v", name, raw, err)
		}
	}
}

func ExampleCodec_Apply() {
	c := builtin.New(builtin.Options{})
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`
	result, changed, err := c.Apply([]byte(service), []byte(`[{"op":"add","path":"/metadata/labels","value":{"team":"a"}}]`))
	fmt.Println(string(result), changed, err)
	// Output:
	// {"kind":"Service","apiVersion":"v1","metadata":{"name":"s","labels":{"team":"a"}},"spec":{"ports":[{"protocol":"TCP","port":80,"targetPort":80}],"type":"ClusterIP","sessionAffinity":"None","internalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{}}} true <nil>
}
