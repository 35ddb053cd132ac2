package custom

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
)

const (
	before = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u","generation":1,` +
		`"labels":{"a":"1"},"annotations":{"b":"2"},"managedFields":[{"manager":"m"}]},"spec":{"size":1.0}}`
	after = `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u"},"spec":{"sizes":[1.0]}}`
)

// edited is the converted object with one thing changed.
func edited(from, to string) string { return success("v1", strings.Replace(after, from, to, 1)) }

func TestAnAnswerIsTakenOrRefusedAsTheOriginalDoes(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   string // in the error; empty when the answer is good
	}{
		"a converted object":         {success("v1", after), ""},
		"another uid":                {strings.Replace(success("v1", after), "%UID%", "other", 1), `got "other"`},
		"no uid":                     {strings.Replace(success("v1", after), "%UID%", "", 1), "expected response.uid"},
		"another review version":     {success("v1beta1", after), "v1beta1"},
		"no kind":                    {strings.Replace(success("v1", after), `"kind":"ConversionReview",`, "", 1), "expected a response of"},
		"no apiVersion":              {strings.Replace(success("v1", after), `"apiVersion":"apiextensions.k8s.io/v1",`, "", 1), "expected a response of"},
		"KIND and APIVERSION":        {strings.NewReplacer(`"kind":"Conv`, `"KIND":"Conv`, `"apiVersion":"api`, `"APIVERSION":"api`).Replace(success("v1", after)), "expected a response of"},
		"a Status":                   {`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no"}`, "want apiextensions.k8s.io/v1"},
		"no response":                {`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, "no response provided"},
		"a failure with a message":   {strings.Replace(success("v1", after), `"Success"`, `"Failure","message":"size is lost"`, 1), "size is lost"},
		"a failure without":          {strings.Replace(success("v1", after), `"Success"`, `"Failure"`, 1), `was "Failure", not "Success"`},
		"no result":                  {strings.Replace(success("v1", after), `"result":{"status":"Success"},`, "", 1), `was "", not "Success"`},
		"a result of the wrong type": {strings.Replace(success("v1", after), `{"status":"Success"}`, `[]`, 1), "reading its answer"},
		"no object":                  {success("v1"), "returned 0 objects, expected 1"},
		"two objects":                {success("v1", after, after), "returned 2 objects, expected 1"},
		"null for an object":         {success("v1", "null"), "not a JSON object"},
		"an array for an object":     {success("v1", "[]"), "not a JSON object"},
		"an empty object":            {success("v1", "{}"), "it has no kind"},
		"empty":                      {"", "reading its answer"},
		"garbage":                    {"<html>", "reading its answer"},
		"null":                       {"null", "no response provided"},
		"cut off":                    {success("v1", after)[:100], "reading its answer"},
		"something behind":           {success("v1", after) + "{}", "reading its answer"},
		"spaces around":              {" \n" + success("v1", after) + "\n", ""},
		"unknown fields":             {strings.Replace(success("v1", after), `"response":{`, `"x":[{}],"response":{"y":1,`, 1), ""},
		"fields in other case":       {strings.Replace(success("v1", after), `"convertedObjects"`, `"ConvertedObjects"`, 1), "returned 0 objects"},
		"a list of one is no object": {success("v1", `{"apiVersion":"example.com/v2","kind":"WidgetList","items":[`+after+`]}`), "invalid kind"},

		"the old version":           {edited("com/v2", "com/v1"), "expected example.com/v2, received example.com/v1"},
		"no object version":         {edited(`"apiVersion":"example.com/v2",`, ""), "invalid groupVersion"},
		"an apiVersion of slashes":  {edited("com/v2", "com/v2/x"), "no proper apiVersion"},
		"no object kind":            {edited(`"kind":"Widget",`, ""), "it has no kind"},
		"another kind":              {edited(`"Widget"`, `"Gadget"`), "expected Widget, received Gadget"},
		"another name":              {edited(`"w"`, `"x"`), `must have the same metadata.name: "w" != "x"`},
		"another namespace":         {edited(`"n"`, `"x"`), "must have the same metadata.namespace"},
		"another uid of the object": {edited(`"u"`, `"x"`), "must have the same metadata.uid"},
		"a name that is a number":   {edited(`"w"`, `1`), "must have the same metadata.name"},
		"a name in escapes":         {edited(`"w"`, `"\u0077"`), ""},
		"no metadata":               {edited(`"metadata":{"name":"w","namespace":"n","uid":"u"},`, ""), "must have the same metadata.name"},
		"other metadata is ignored": {edited(`"uid":"u"`, `"uid":"u","generation":"x","finalizers":7`), ""},
		"labels":                    {edited(`"uid":"u"`, `"uid":"u","labels":{"a":"2","c":"3"}`), ""},
		"labels in escapes":         {edited(`"uid":"u"`, `"uid":"u","labels":{"\u0061":"\u0031"}`), ""},
		"null labels":               {edited(`"uid":"u"`, `"uid":"u","labels":null,"annotations":{}`), ""},
		"annotations":               {edited(`"uid":"u"`, `"uid":"u","annotations":{"example.com/b":"any value / at all"}`), ""},
		"labels that are no map":    {edited(`"uid":"u"`, `"uid":"u","labels":["a"]`), "invalid metadata.labels"},
		"a label that is a number":  {edited(`"uid":"u"`, `"uid":"u","labels":{"a":1}`), "metadata.labels[a] must be a string, but is int64"},
		"a label that is null":      {edited(`"uid":"u"`, `"uid":"u","labels":{"a":null}`), "must be a string, but is <nil>"},
		"a bad label":               {edited(`"uid":"u"`, `"uid":"u","labels":{"a":"no spaces"}`), "metadata.labels"},
		"a bad annotation":          {edited(`"uid":"u"`, `"uid":"u","annotations":{"no spaces":"x"}`), "metadata.annotation"},
		"annotations of any size":   {edited(`"uid":"u"`, `"uid":"u","annotations":{"b":"`+strings.Repeat("x", 256<<10)+`"}`), "Too long"},
		"the same key twice":        {edited(`"uid":"u"`, `"uid":"u","labels":{"a":"no spaces","a":"2"}`), ""},
		"metadata twice":            {edited(`"spec"`, `"metadata":{"name":"w","namespace":"n","uid":"u","labels":{"c":"3"}},"spec"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newComparison(t, "v1").compare(t, []byte(before), c.answer)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(),
				"converting a Widget of CustomResourceDefinition widgets.example.com from example.com/v1 to example.com/v2: ") {
				t.Errorf("the error names neither definition nor versions: %v", err)
			}
		})
	}
}

func TestAnAnswerOfV1beta1IsNotAskedWhatItIs(t *testing.T) {
	c := newComparison(t, "v2", "v1beta1", "v1")
	for name, answer := range map[string]string{
		"as it should be": success("v1beta1", after),
		"another uid":     strings.Replace(success("v1beta1", after), "%UID%", "other", 1),
		"no kind":         strings.Replace(success("v1beta1", after), `"kind":"ConversionReview",`, "", 1),
		"no apiVersion":   strings.Replace(success("v1beta1", after), `"apiVersion":"apiextensions.k8s.io/v1beta1",`, "", 1),
		"its group alone": strings.Replace(success("v1beta1", after), "apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/", 1),
		"its case":        strings.Replace(success("v1beta1", after), `"kind":"Conv`, `"Kind":"Conv`, 1),
	} {
		if _, err := c.compare(t, []byte(before), answer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, answer := range map[string]string{
		"v1":          success("v1", after),
		"another":     strings.Replace(success("v1beta1", after), "ConversionReview", "Conversion", 1),
		"no response": `{}`,
	} {
		if _, err := c.compare(t, []byte(before), answer); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestTheMetadataOfTheObjectStays(t *testing.T) {
	c := newComparison(t, "v1")
	got, err := c.compare(t, []byte(before), edited(`"uid":"u"`, `"labels":{"a":"1","\u0063":"3"},"uid":"u","generation":7`))
	want := `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u","generation":1,` +
		`"managedFields":[{"manager":"m"}],"labels":{"a":"1","\u0063":"3"}},"spec":{"sizes":[1.0]}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}

func TestObjectsWithOddMetadata(t *testing.T) {
	c := newComparison(t, "v1")
	bare := `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{}}`
	labelled := `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"labels":{"a":"1"}}}`
	for name, x := range map[string]struct {
		raw, answer string
		ok          bool
	}{
		"no metadata":                      {`{"apiVersion":"example.com/v1","kind":"Widget","spec":{}}`, success("v1", labelled), true},
		"null for metadata":                {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":null}`, success("v1", bare), false},
		"a string for metadata":            {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":"x"}`, success("v1", bare), false},
		"null for labels":                  {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":null}}`, success("v1", labelled), true},
		"an array for labels":              {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":[]}}`, success("v1", labelled), false},
		"an array for labels that go":      {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":[]}}`, success("v1", bare), true},
		"a label that is a number":         {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":1}}}`, success("v1", labelled), true},
		"a bad label that stays":           {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a b":"1"}}}`, success("v1", strings.Replace(labelled, `"a"`, `"a b"`, 1)), true},
		"a bad label, and a good one more": {`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a b":"1"}}}`, success("v1", strings.Replace(labelled, `"a":"1"`, `"a b":"1","c":"2"`, 1)), false},
		"metadata twice":                   {`{"metadata":{"name":"w"},"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"x":"y"}}}`, success("v1", labelled), true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.compare(t, []byte(x.raw), x.answer); (err == nil) != x.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(success("v1", after))
	f.Add(success("v1beta1", after))
	f.Add(edited(`"uid":"u"`, `"uid":"u","labels":{"a":"1","\u0063":null},"annotations":{"d/e":"f"}`))
	f.Add(strings.Replace(success("v1", after), `"Success"`, `"Failure","message":"m","details":{"causes":[]}`, 1))
	for _, objects := range []string{`[null]`, `null`, `[1]`, `["0"]`, `[null,{}]`, `[{}],"convertedObjects":[null]`, `[{},{}],"converted\u004fbjects":[{"a":1}]`, `{}`, `[`} {
		f.Add(strings.Replace(success("v1", after), `"convertedObjects":`, `"convertedObjects":`+objects+`,"convertedObjects":`, 1))
		f.Add(strings.Replace(success("v1", after), `]}}`, `],"convertedObjects":`+objects+`}}`, 1))
	}
	v1, v1beta1 := newComparison(f, "v1"), newComparison(f, "v1beta1")
	f.Fuzz(func(t *testing.T, answer string) {
		if !strings.HasPrefix(strings.TrimLeft(answer, " \t\r\n"), "{") {
			return // The original would try YAML and protobuf.
		}
		_, _ = v1.compare(t, []byte(before), answer)
		_, _ = v1beta1.compare(t, []byte(before), answer)
	})
}

// The original decodes a converted object, which reads U+FFFD, and webhooks get that.
func TestAConvertedObjectIsText(t *testing.T) {
	for _, quoted := range []string{"V\xff\xfe", `\ud83d`, "\xed\xa0\x80"} {
		got, err := decodeAnswer([]byte(strings.ReplaceAll(success("v1", strings.Replace(after, `"w"`, `"w`+quoted+`"`, 1)), "%UID%", "1")), "apiextensions.k8s.io/v1", "1")
		if err != nil || conversion.CheckText(got) != nil || !strings.Contains(string(got), `"w`) {
			t.Errorf("%q became %q, error %v", quoted, got, err)
		}
	}
}
