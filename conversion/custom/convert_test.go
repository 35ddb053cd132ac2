package custom

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// nobody is a Caller that is not called.
func nobody(t testing.TB) Caller {
	t.Helper()
	return callerFunc(func([]byte) ([]byte, error) {
		t.Error("the webhook was called")
		return nil, errors.New("called")
	})
}

func TestStrategyNoneChangesTheVersionAndNoOtherByte(t *testing.T) {
	crd := definition("v1", "v2")
	d, there := compiled(t, crd), newOriginal(t, crd)
	for name, c := range map[string][2]string{
		"a plain object":       {`{"apiVersion":"example.com/v1","kind":"Widget"}`, `{"apiVersion":"example.com/v2","kind":"Widget"}`},
		"spaces and the order": {"{ \"kind\" : \"Widget\" ,\n\t\"apiVersion\" : \"example.com/v1\" , \"a\" : [ ] }\n", "{ \"kind\" : \"Widget\" ,\n\t\"apiVersion\" : \"example.com/v2\" , \"a\" : [ ] }\n"},
		"numbers": {
			`{"kind":"Widget","spec":{"a":9007199254740993,"b":18446744073709551616,"c":1.0,"d":1e3,"e":-0,"f":0.1000,"g":1E+2},"apiVersion":"example.com/v1"}`,
			`{"kind":"Widget","spec":{"a":9007199254740993,"b":18446744073709551616,"c":1.0,"d":1e3,"e":-0,"f":0.1000,"g":1E+2},"apiVersion":"example.com/v2"}`,
		},
		"the same member twice": {
			`{"apiVersion":"other","x":1,"apiVersion":"example.com/v1","x":2,"kind":"Gadget","kind":"Widget","spec":{"a":1,"a":2}}`,
			`{"apiVersion":"example.com/v2","x":1,"apiVersion":"example.com/v2","x":2,"kind":"Gadget","kind":"Widget","spec":{"a":1,"a":2}}`,
		},
		"escapes": {
			`{"\u0061piVersion":"example.com\/v1","kind":"\u0057idget","text":"\ud83d\ude00 \u003c<\u2028"}`,
			`{"\u0061piVersion":"example.com/v2","kind":"\u0057idget","text":"\ud83d\ude00 \u003c<\u2028"}`,
		},
		"members that are nearly the version": {
			`{"ApiVersion":1,"apiversion":"example.com/v1","apiVersion":"example.com/v1","kind":"Widget","spec":{"apiVersion":"example.com/v1"}}`,
			`{"ApiVersion":1,"apiversion":"example.com/v1","apiVersion":"example.com/v2","kind":"Widget","spec":{"apiVersion":"example.com/v1"}}`,
		},
		"metadata of any type": {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":null,"items":[]}`, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":null,"items":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(c[0])
			got, err := d.Convert(t.Context(), raw, widget("v2"), nobody(t))
			if err != nil || string(got) != c[1] {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, c[1])
			}
			if string(raw) != c[0] {
				t.Errorf("the object was changed: %s", raw)
			}
			want, err := there.convert(raw, widget("v2"))
			if err != nil || !reflect.DeepEqual(tree(t, got), want) {
				t.Errorf("the original: %v, %v", err, want)
			}
		})
	}
}

func TestVersionsThatAreNotServedAreConvertedToo(t *testing.T) {
	crd := definition("v1", "v2")
	crd.Spec.Versions[1].Served = false
	d := compiled(t, crd)
	if _, err := newOriginal(t, crd).convert([]byte(before), widget("v2")); err != nil {
		t.Errorf("the original: %v", err)
	}
	if _, err := d.Convert(t.Context(), []byte(before), widget("v2"), nobody(t)); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotOfTheDefinitionIsNotConverted(t *testing.T) {
	crd := definition("v1", "v2")
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{}}
	withScale, without := compiled(t, crd), compiled(t, withWebhook(definition("v1", "v2"), "https://webhook.example.com", nil, "v1"))
	scale := `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":1}}`
	for name, c := range map[string]struct {
		d    *Definition
		raw  string
		to   schema.GroupVersionKind
		want string // in the error
	}{
		"to a version that it does not have":     {withScale, before, widget("v3"), `version "v3" is none of spec.versions`},
		"from a version that it does not have":   {withScale, strings.Replace(before, "v1", "v0", 1), widget("v2"), `version "v0" is none of spec.versions`},
		"in a version that it does not have":     {withScale, strings.Replace(before, "v1", "v0", 1), widget("v0"), `version "v0" is none of spec.versions`},
		"to another kind":                        {withScale, before, widget("v2").GroupVersion().WithKind("Gadget"), "Kind=Gadget is not of this"},
		"to another group":                       {without, before, schema.GroupVersionKind{Group: "example.org", Version: "v2", Kind: "Widget"}, "is not of this"},
		"from another kind":                      {withScale, strings.Replace(before, "Widget", "Gadget", 1), widget("v2"), "Kind=Gadget is not of this"},
		"from another group":                     {without, strings.Replace(before, ".com", ".org", 1), widget("v2"), "example.org/v1, Kind=Widget is not of this"},
		"without a kind":                         {withScale, `{"apiVersion":"example.com/v1"}`, widget("v2"), "an object without a kind"},
		"without a version":                      {withScale, `{"kind":"Widget"}`, widget("v2"), "/, Kind=Widget is not of this"},
		"with null for a version":                {withScale, `{"apiVersion":"example.com/v1","kind":"Widget","apiVersion":null}`, widget("v2"), "/, Kind=Widget is not of this"},
		"with a version that cannot be read":     {withScale, `{"apiVersion":"example.com/v1/x","kind":"Widget"}`, widget("v2"), "an object without a kind"},
		"with a number for a kind":               {withScale, `{"apiVersion":"example.com/v1","kind":1}`, widget("v2"), "an object without a kind"},
		"a Scale to a Widget":                    {withScale, scale, widget("v2"), "a Scale is no Widget"},
		"a Widget to a Scale":                    {withScale, before, scaleKind(), "a Widget is no Scale"},
		"a Scale of a resource that has none":    {without, scale, scaleKind(), "Kind=Scale is not of this"},
		"an array":                               {withScale, `[]`, widget("v2"), "not a JSON object"},
		"null":                                   {withScale, `null`, widget("v2"), "not a JSON object"},
		"nothing":                                {without, ``, widget("v2"), "not a JSON object"},
		"an object that is cut off":              {withScale, before[:50], widget("v2"), "unexpected"},
		"an object that ends within its members": {withScale, `{"apiVersion":"example.com/v1"`, widget("v2"), "unexpected end"},
		"two objects":                            {withScale, before + before, widget("v2"), "want the end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.d.Convert(t.Context(), []byte(c.raw), c.to, nobody(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "widgets.example.com") ||
				!strings.Contains(err.Error(), c.to.Version) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestWhatNeedsNoConversionNeedsNoWebhook(t *testing.T) {
	crd := withWebhook(definition("v1", "v2"), "https://webhook.example.com", nil, "v1")
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{}}
	d := compiled(t, crd)
	for raw, to := range map[string]schema.GroupVersionKind{
		before: widget("v1"),
		`{ "apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":1}}`: scaleKind(),
	} {
		if got, err := d.Convert(t.Context(), []byte(raw), to, nobody(t)); err != nil || string(got) != raw {
			t.Errorf("%v: %s", err, got)
		}
	}
	got, err := d.Convert(t.Context(), []byte(`{"kind":"Widget", "apiVersion":"example.com/v1"}`), widget("v2"), nobody(t))
	if err != nil || string(got) != `{"kind":"Widget", "apiVersion":"example.com/v2"}` {
		t.Errorf("an empty object: %v, %s", err, got)
	}
}

func TestAWebhookThatSpeaksNoKnownVersionIsNotCalled(t *testing.T) {
	d := compiled(t, withWebhook(definition("v1", "v2"), "https://webhook.example.com", nil, "v2", "v1alpha1"))
	_, err := d.Convert(t.Context(), []byte(before), widget("v2"), nobody(t))
	if err == nil || !strings.Contains(err.Error(), "takes none of the ConversionReview versions") {
		t.Error(err)
	}
}

// contextual is a Caller as a function of its context and client configuration.
type contextual func(ctx context.Context, at *apiextensionsv1.WebhookClientConfig) error

func (f contextual) CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, _ []byte) ([]byte, error) {
	return nil, f(ctx, at)
}

func TestTheCallerIsToldWhereTo(t *testing.T) {
	type key struct{}
	crd := withWebhook(definition("v1", "v2"), "https://webhook.example.com/convert", []byte(" \n"), "v1")
	ctx, failure := context.WithValue(t.Context(), key{}, "here"), errors.New("no route")
	_, err := compiled(t, crd).Convert(ctx, []byte(before), widget("v2"), contextual(func(ctx context.Context, at *apiextensionsv1.WebhookClientConfig) error {
		if *at.URL != "https://webhook.example.com/convert" || at.CABundle != nil || ctx.Value(key{}) != "here" {
			t.Errorf("called %v with %v", at, ctx)
		}
		return failure
	}))
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), "look at spec.conversion") {
		t.Error(err)
	}
}

func TestRandomObjectsAndAnswers(t *testing.T) {
	citest.Sequential(t)
	rng := rand.New(rand.NewPCG(3, 4))
	c := map[string]*comparison{"v1": newComparison(t, "v1"), "v1beta1": newComparison(t, "v1beta1", "v1")}
	good := 0
	for range 1500 {
		g := generator{rng}
		object := g.object("v1")
		answered := g.answered(object)
		for version, c := range c {
			if _, err := c.compare(t, []byte(quoted(t, object)), g.review(t, version, answered)); err == nil {
				good++
			}
		}
	}
	if good < 500 {
		t.Errorf("only %d of the answers were good", good)
	}
}

func FuzzObject(f *testing.F) {
	for _, raw := range []string{
		before, after, `{"apiVersion":"example.com/v1","kind":"Widget"}`, `{"apiVersion":"example.com\/v1","kind":"Widget","kind":null}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":"1","a":2}},"x":[1.0,{"y":-0}] }`,
	} {
		f.Add([]byte(raw))
	}
	crd := definition("v1", "v2")
	none, there, asked := compiled(f, crd), newOriginal(f, crd), newComparison(f, "v1")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if o, err := parse(raw); err == nil && o.kind() != widget("v1") {
			return // The object is of another definition, or in v2 already.
		}
		_, _ = asked.compare(t, raw, success("v1", after))
		got, err := none.Convert(t.Context(), raw, widget("v2"), nobody(t))
		want, wantErr := there.convert(raw, widget("v2"))
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(tree(t, got), want) {
			t.Fatalf("got %s, %v, want %v, %v, of %s", got, err, want, wantErr, raw)
		}
	})
}
