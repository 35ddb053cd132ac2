package initializer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"}}`

// object is a staged Pod that initializers are pending of.
func object(pending ...string) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{Cluster: "prod", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "default", Name: "p"},
		Uid: "u1", ResourceVersion: "7", ReviewUid: "r1", Pending: pending, Object: &admissionv1.Object{Raw: []byte(podJSON)},
		Created: timestamppb.New(time.Unix(1, 0)), Waiting: timestamppb.New(time.Unix(1, 0)),
	}
}

// rulesOf returns the rules of a caller who may act as the granted initializers. Initializers a to z are configured.
func rulesOf(granted ...string) Rules {
	return Rules{
		Granted:        func(name string) bool { return slices.Contains(granted, name) },
		Configured:     configuredLetter,
		MaxObjectBytes: 200, Now: time.Unix(2, 0),
	}
}

// configuredLetter is [Rules.Configured] of initializers a to z, of which "d" stands in two configurations.
func configuredLetter(name string) []string {
	switch {
	case name == "d":
		return []string{"one/d", "two/d"}
	case len(name) == 1:
		return []string{name}
	}
	return nil
}

// letters are names of initializers.
func letters(names string) []string { return strings.Split(names, "") }

// refused checks the reason of an error, and that its message has a text; no reason is no error.
func refused(t *testing.T, err error, reason Reason, text string) {
	t.Helper()
	var e *RefusedError
	switch {
	case reason == 0 && err != nil:
		t.Errorf("error %v", err)
	case reason != 0 && (!errors.As(err, &e) || e.Reason != reason || !strings.Contains(e.Message, text)):
		t.Errorf("error %v, want reason %d and %q", err, reason, text)
	}
}

func TestOnlyTheSameReviewMayStageAgain(t *testing.T) {
	for name, test := range map[string]struct {
		there     *initializerv1.StagedObject
		reviewUID string
		reason    Reason
		text      string
	}{
		"nothing is there":                 {nil, "r1", 0, ""},
		"the same review":                  {object("a"), "r1", 0, ""},
		"another review":                   {object("a"), "r2", Exists, `pods "p" already exists: it is being initialized and waits for "a"`},
		"another one, when all have acted": {object(), "r2", Exists, `pods "p" already exists: it is being initialized`},
		"a review without a uid":           {&initializerv1.StagedObject{}, "", Exists, "already exists"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, Create(test.there, test.reviewUID), test.reason, test.text) })
	}
}

func TestPendingNamesOfAnUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		text          string // of the refusal; empty for none
	}{
		"the first one removes itself":    {"abc", "bc", ""},
		"the last one removes itself":     {"a", "", ""},
		"nothing changes":                 {"abc", "abc", ""},
		"one is added in front":           {"abc", "xbc", ""},
		"some are added everywhere":       {"abc", "xbycz", ""},
		"some are added, and it stays":    {"abc", "axbyc", ""},
		"one is added in front of itself": {"abc", "xabc", `"a" is out of its place`},
		"another one is removed":          {"abc", "ac", `"c" is out of its place`},
		"both of two are removed":         {"ab", "", `"b" is missing`},
		"the others change places":        {"abc", "cb", `"c" is out of its place`},
		"it goes behind the others":       {"abc", "bca", `"a" is out of its place`},
		"a name is there twice":           {"ab", "xxb", `"x" is there twice`},
		"a pending one is there twice":    {"ab", "bb", `"b" is there twice`},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(letters(test.before)...)
			next, err := Update(o, UpdateRequest{ResourceVersion: "7", Pending: letters(test.after)}, rulesOf("a"))
			if test.text != "" {
				refused(t, err, Invalid, test.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(next.GetPending(), ""); got != test.after {
				t.Errorf("pending %q, want %q", got, test.after)
			}
			if first := strings.HasPrefix(test.after, "a"); test.after != "" && next.GetWaiting().AsTime().Equal(o.GetWaiting().AsTime()) != first {
				t.Errorf("waiting since %v", next.GetWaiting().AsTime())
			}
		})
	}
	for text, pending := range map[string][]string{
		`there is no initializer "nobody"`: {"nobody"}, `there is no initializer ""`: {""}, "pending has 65 names; at most 64": make([]string, MaxPending+1),
	} {
		_, err := Update(object("a"), UpdateRequest{ResourceVersion: "7", Pending: pending}, rulesOf("a"))
		refused(t, err, Invalid, text)
	}
}

// Two configurations may have an initializer of one name: clients see the names, and the initializers stay apart.
func TestPendingNamesThatTwoInitializersHave(t *testing.T) {
	for name, test := range map[string]struct {
		before, after, want string // the first initializer of before acts
		text                string // of the refusal; empty for none
	}{
		"the first of the two removes itself":      {"one/x two/x", "x", "two/x", ""},
		"the first of the two stays":               {"one/x two/x", "x x", "one/x two/x", ""},
		"both are removed":                         {"one/x two/x", "", "", `"x" is missing`},
		"the first one goes, and another is added": {"one/x two/x", "x y", "two/x y", ""},
		"the two are behind the first":             {"one/a one/x two/x", "x x", "one/x two/x", ""},
		"one of the two behind it is removed":      {"one/a one/x two/x", "x", "", `"x" is missing`},
		"a third one stands between them":          {"one/x one/b two/x", "b x", "one/b two/x", ""},
		"the first goes behind the third":          {"one/x one/b two/x", "b x x", "", `"x" is there twice`},
		"a name that two have is added":            {"one/a", "d", "", `"d" is the name of 2 initializers (one/d, two/d)`},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(strings.Fields(test.before)...)
			next, err := Update(o, UpdateRequest{ResourceVersion: "7", Pending: strings.Fields(test.after)}, rulesOf(o.GetPending()[0]))
			if test.text != "" {
				refused(t, err, Invalid, test.text)
			} else if err != nil || strings.Join(next.GetPending(), " ") != test.want {
				t.Errorf("pending %q, want %q; %v", next.GetPending(), test.want, err)
			}
		})
	}
	_, err := Update(object("one/x", "two/x"), UpdateRequest{ResourceVersion: "7", Pending: []string{"x"}}, rulesOf("two/x"))
	refused(t, err, Forbidden, "")
	if got := Progress(object("one/x", "two/x"), []string{"one/x", "two/x"}); got != Waiting {
		t.Errorf("before either has acted: %d", got)
	}
	refused(t, Delete(object("one/x"), "", "", Deleter{Granted: rulesOf("two/x").Granted}), Forbidden, "")
}

func TestObjectsOfAnUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		object string
		text   string
	}{
		"labels, finalizers and annotations":  {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","labels":{"a":"b"},"finalizers":["x"]}}`, ""},
		"another version":                     {`{"apiVersion":"v2","kind":"Pod","metadata":{"name":"p","namespace":"default"}}`, `apiVersion cannot be changed: it is "v1", not "v2"`},
		"another kind":                        {`{"apiVersion":"v1","kind":"Job","metadata":{"name":"p","namespace":"default"}}`, "kind cannot be changed"},
		"another name":                        {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q","namespace":"default"}}`, "metadata.name cannot"},
		"another name beside a field like it": {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q","Name":"p","namespace":"default"}}`, "metadata.name cannot"},
		"no name":                             {`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default"}}`, "metadata.name cannot"},
		"a generated name":                    {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","generateName":"p-","namespace":"default"}}`, "metadata.generateName cannot"},
		"another namespace":                   {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"kube-system"}}`, "metadata.namespace cannot"},
		"a uid":                               {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"u1"}}`, "metadata.uid cannot"},
		"a resource version":                  {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","resourceVersion":"7"}}`, "metadata.resourceVersion cannot"},
		"the list of 1.7":                     {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","initializers":{"pending":[]}}}`, "metadata.initializers cannot"},
		"bytes that are no text":              {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","labels":{"a":"` + "\xff" + `"}}}`, "the object has invalid UTF-8 in a string"},
		"no JSON":                             {`{`, "not JSON"},
		"no object":                           {`[]`, "not JSON"},
		"too many bytes":                      {podJSON + strings.Repeat(" ", 201-len(podJSON)), "the object has 201 bytes; at most 200"},
		"as many bytes as there may be":       {podJSON + strings.Repeat(" ", 200-len(podJSON)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := Update(object("a"), UpdateRequest{ResourceVersion: "7", Object: []byte(test.object)}, rulesOf("a"))
			if test.text != "" {
				refused(t, err, Invalid, test.text)
			} else if err != nil || string(next.GetObject().GetRaw()) != test.object {
				t.Errorf("%v, %v", next, err)
			}
		})
	}
}

func TestWhoMayUpdate(t *testing.T) {
	result := &admissionv1.Status{Status: "Failure", Code: 422}
	refusedObject := object("a")
	refusedObject.Result = result
	for name, test := range map[string]struct {
		object *initializerv1.StagedObject
		change UpdateRequest
		rules  Rules
		reason Reason
	}{
		"the first one":                   {object("a", "b"), UpdateRequest{ResourceVersion: "7", Pending: []string{"b"}}, rulesOf("a"), 0},
		"the second one":                  {object("a", "b"), UpdateRequest{ResourceVersion: "7", Pending: []string{"b"}}, rulesOf("b"), Forbidden},
		"nobody":                          {object("a"), UpdateRequest{ResourceVersion: "7"}, rulesOf(), Forbidden},
		"anybody when all have acted":     {object(), UpdateRequest{ResourceVersion: "7"}, rulesOf("a"), Forbidden},
		"from another version":            {object("a"), UpdateRequest{ResourceVersion: "6"}, rulesOf("a"), Conflict},
		"from no version":                 {object("a"), UpdateRequest{}, rulesOf("a"), Invalid},
		"of an object that is refused":    {refusedObject, UpdateRequest{ResourceVersion: "7"}, rulesOf("a"), Conflict},
		"with a result":                   {object("a", "b"), UpdateRequest{ResourceVersion: "7", Result: result}, rulesOf("a"), 0},
		"with a result that is a success": {object("a"), UpdateRequest{ResourceVersion: "7", Result: &admissionv1.Status{Status: "Success"}}, rulesOf("a"), Invalid},
		"with a result that is nothing":   {object("a"), UpdateRequest{ResourceVersion: "7", Result: &admissionv1.Status{}}, rulesOf("a"), Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			before := proto.CloneOf(test.object)
			next, err := Update(test.object, test.change, test.rules)
			refused(t, err, test.reason, "")
			if diff := cmp.Diff(before, test.object, protocmp.Transform()); diff != "" {
				t.Errorf("the object before was written (-was +is):\n%s", diff)
			}
			if test.change.Result == result && err == nil && (next.GetResult() != result || len(next.GetPending()) != 2) {
				t.Errorf("next %v", next)
			}
		})
	}
}

func TestWhoMayDelete(t *testing.T) {
	granted := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	for name, test := range map[string]struct {
		who     Deleter
		uid     string
		version string
		reason  Reason
	}{
		"the first pending one":   {Deleter{Granted: granted("a")}, "", "", 0},
		"a later one":             {Deleter{Granted: granted("b")}, "u1", "7", 0},
		"an operator":             {Deleter{Granted: granted(), Operator: true}, "u1", "", 0},
		"anybody else":            {Deleter{Granted: granted("c")}, "", "", Forbidden},
		"one with another uid":    {Deleter{Granted: granted("a")}, "u2", "", Conflict},
		"one with an old version": {Deleter{Granted: granted("a")}, "", "6", Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, Delete(object("a", "b"), test.uid, test.version, test.who), test.reason, "")
		})
	}
}

// The holder writes pending names when it asks the next initializer: added names stay behind the name that they follow.
func TestPendingNamesOfTheHolder(t *testing.T) {
	for name, test := range map[string]struct{ staged, before, pending, want string }{
		"the first one has acted":                    {"bc", "abc", "bc", "bc"},
		"the time of the first one is over":          {"abc", "abc", "bc", "bc"},
		"what it has added goes with it":             {"axbc", "abc", "bc", "bc"},
		"what is added behind the next one stays":    {"bxc", "abc", "bc", "bxc"},
		"what is added at the end stays":             {"bcx", "abc", "bc", "bcx"},
		"the next one does not match any more":       {"bc", "abc", "c", "c"},
		"one behind does not match any more":         {"bcd", "abcd", "bd", "bd"},
		"one behind matches now":                     {"bd", "abd", "bcd", "bcd"},
		"the next one matches now":                   {"c", "ac", "bc", "bc"},
		"what was added matches now":                 {"bxc", "abc", "bxc", "bxc"},
		"what was added behind one that goes, stays": {"bcxd", "abcd", "bd", "bd"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(letters(test.staged)...)
			next, err := Sync(o, []byte("{}"), Names{Before: letters(test.before), Now: letters(test.pending)}, time.Unix(2, 0))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(next.GetPending(), ""); got != test.want || string(next.GetObject().GetRaw()) != "{}" {
				t.Errorf("pending %q of %s, want %q", got, next.GetObject().GetRaw(), test.want)
			}
		})
	}
	o := object("a")
	o.Result = &admissionv1.Status{Status: "Failure"}
	_, err := Sync(o, nil, Names{Now: []string{"a"}}, time.Unix(2, 0))
	refused(t, err, Conflict, "refused already")
}

func TestProgress(t *testing.T) {
	refusal := object("a", "b")
	refusal.Result = &admissionv1.Status{Status: "Failure"}
	for name, test := range map[string]struct {
		object  *initializerv1.StagedObject
		pending string
		want    State
	}{
		"it has not acted":             {object("a", "b"), "ab", Waiting},
		"it has":                       {object("b"), "ab", Initialized},
		"the last one has":             {object(), "a", Initialized},
		"one that it added has not":    {object("x", "b"), "ab", Waiting},
		"the last one added one":       {object("x"), "a", Waiting},
		"one is added behind the next": {object("b", "x"), "ab", Initialized},
		"the next one has acted too":   {object("c"), "abc", Initialized},
		"all have acted":               {object(), "abc", Initialized},
		"one of them has refused it":   {refusal, "ab", Refused},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Progress(test.object, letters(test.pending)); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}
