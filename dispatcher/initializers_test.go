package dispatcher_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// authorizing is static for a cluster with an authorizer.
type authorizing struct {
	static

	authorizer authorizer.Authorizer
}

func (a authorizing) Cluster(string) match.Cluster { return a }

func (a authorizing) Authorizer() authorizer.Authorizer { return a.authorizer }

// TestInitializersThatAnObjectNames reads the list of an object in both of its forms. There is no stager, so that the initializers which act
// fail, and fail open: the annotations of the answer name them.
func TestInitializersThatAnObjectNames(t *testing.T) {
	asks := func(d authorizer.Decision) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() != "initialize" || a.GetResource() != "pods" || a.GetUser().GetName() != "jane" {
				t.Errorf("asked about %+v", a)
			}
			return d, "by a rule", nil
		})
	}
	allows, denies := asks(authorizer.DecisionAllow), asks(authorizer.DecisionNoOpinion)
	annotated := func(list string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"b","initializers.portcullis.dev/pending":` + list + `}}}`
	}
	const stripped = `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"b"},"name":"p"}}` // as a patch leaves it
	const kept = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"b"}}}`
	for name, tt := range map[string]struct {
		authorizer authorizer.Authorizer
		pod        string
		code       int32 // 0: allowed
		message    string
		acted      string // names of the initializers
		object     string
	}{
		"none":                           {denies, kept, 0, "", "a.io b.io", kept},
		"an empty list":                  {allows, annotated(`"[]"`), 0, "", "", stripped},
		"one of two":                     {allows, annotated(`"[\"b.io\"]"`), 0, "", "b.io", stripped},
		"one that does not apply":        {allows, annotated(`"[\"c.io\"]"`), 422, "no initializer \"c.io\" applies", "", ""},
		"an empty list without the verb": {denies, annotated(`"[]"`), 403, "may not initialize pods", "", ""},
		"an empty list, nobody to ask":   {nil, annotated(`"[]"`), 403, "cannot ask this cluster", "", ""},
		"a list that is none":            {allows, annotated(`"x"`), 400, "no JSON list", "", ""},
		"the field of Kubernetes 1.7": {
			allows, `{"kind":"Pod","apiVersion":"v1","metadata":{"initializers":{"pending":[{"name":"a.io"}]},"name":"p"}}`, 0, "", "a.io",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`,
		},
		"the word elsewhere": {denies, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"initializers"}}`, 0, "", "a.io b.io", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"initializers"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(nil, []hook{{name: "a.io", ignore: true}, {name: "b.io", ignore: true}})
			in.Objects[len(in.Objects)-1].Initializes = true
			snapshot, _ := match.Compile(in)
			d := newMeshOf(t, snapshot, authorizing{static{snapshot: snapshot}, tt.authorizer}).dispatcher
			r := podReview(admissionv1.Stage_STAGE_MUTATE, tt.pod)
			r.Admission.UserInfo = &admissionv1.UserInfo{Username: "jane"}

			answer, err := d.Review(t.Context(), r)

			if err != nil || answer.Response.GetAllowed() != (tt.code == 0) || answer.Response.GetStatus().GetCode() != tt.code ||
				!strings.Contains(answer.Response.GetStatus().GetMessage(), tt.message) || string(answer.Object) != tt.object {
				t.Errorf("answer %v with %s, %v", answer.Response, answer.Object, err)
			}
			var acted []string
			for _, o := range answer.Outcomes {
				if o.GetRound() == 0 && o.GetOutcome() == "failed-open" {
					acted = append(acted, o.GetHook())
				}
			}
			if got := strings.Join(acted, " "); got != tt.acted {
				t.Errorf("%q acted, want %q: %v", got, tt.acted, answer.Outcomes)
			}
		})
	}
}

// TestAnUpdateAddsNoInitializers: they act at the creation. Kubernetes 1.7 to 1.9 called it Invalid.
func TestAnUpdateAddsNoInitializers(t *testing.T) {
	const (
		plain = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"b"}}}`
		named = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"initializers.portcullis.dev/pending":"[\"a.io\"]"}}}`
		none  = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"initializers.portcullis.dev/pending":"[]"}}}`
		field = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","initializers":{"pending":[{"name":"a.io"}]}}}`
		wrong = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"initializers.portcullis.dev/pending":"x"}}}`
	)
	for name, test := range map[string]struct {
		before, after string
		initializers  bool // there are some in the cluster
		refused       bool
	}{
		"nothing":                         {plain, plain, true, false},
		"a name":                          {plain, named, true, true},
		"an empty list":                   {plain, none, true, true},
		"a list that is none":             {plain, wrong, true, true},
		"the field of Kubernetes 1.7":     {plain, field, true, true},
		"one that was there":              {named, named, true, false},
		"one in the place of another":     {none, named, true, false},
		"the end of one":                  {named, plain, true, false},
		"a cluster without initializers":  {plain, named, false, false},
		"one that was there, and is none": {wrong, named, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(nil, []hook{{name: "a.io", ignore: true}})
			in.Objects[len(in.Objects)-1].Initializes = test.initializers
			snapshot, _ := match.Compile(in)
			d := newMeshOf(t, snapshot, static{snapshot: snapshot}).dispatcher
			r := podReview(admissionv1.Stage_STAGE_MUTATE, test.after)
			r.Admission.Operation, r.Admission.OldObject = "UPDATE", &admissionv1.Object{Raw: []byte(test.before)}

			answer, err := d.Review(t.Context(), r)

			if err != nil || answer.Response.GetAllowed() == test.refused || test.refused && answer.Response.GetStatus().GetCode() != 422 {
				t.Errorf("answer %v, %v", answer.Response, err)
			}
		})
	}
}
