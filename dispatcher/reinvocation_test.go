package dispatcher_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// apiServer is the mutating admission of an API server with one in-tree plugin and the two entries that lead to the mesh:
// /mutate, which is never called again, and /reinvoke, which is if needed. Hooks are called again for each other's changes
// inside /mutate; /reinvoke is for changes by in-tree plugins.
type apiServer struct {
	t          *testing.T
	dispatcher *dispatcher.Dispatcher
	inTree     map[int]bool            // whether the plugin changes the object the nth time
	hooks      map[string]map[int]bool // the same for hooks
	times      map[string]int
	log        []string
}

// admit is reinvoker.Admit of k8s.io/apiserver/pkg/admission, with its calls of the two entries.
func (s *apiServer) admit(object []byte) []byte {
	s.t.Helper()
	object = s.plugin(object)
	output := s.review(mutate, object)
	// In the first round /reinvoke sees the output of /mutate: no hook is called.
	output = s.review(admissionv1.Stage_STAGE_REINVOKE, output)
	if bytes.Equal(object, output) {
		return output // nothing changed: nothing is done again
	}
	object = s.plugin(output)
	if bytes.Equal(object, output) {
		return object
	}
	return s.review(admissionv1.Stage_STAGE_REINVOKE, object)
}

func (s *apiServer) plugin(object []byte) []byte {
	s.t.Helper()
	patch := s.turn("in-tree", s.inTree)
	return s.apply(object, patch)
}

func (s *apiServer) review(stage admissionv1.Stage, object []byte) []byte {
	s.t.Helper()
	answer, err := s.dispatcher.Review(s.t.Context(), podReview(stage, string(object)))
	if err != nil || !answer.Response.GetAllowed() {
		s.t.Fatalf("answer %v, error %v", answer, err)
	}
	return s.apply(object, answer.Response.GetPatch())
}

// turn is the next turn of a plugin or a hook: a patch that no other turn makes, or none.
func (s *apiServer) turn(who string, changes map[int]bool) []byte {
	s.times[who]++
	n := s.times[who]
	if !changes[n] {
		s.log = append(s.log, who+": no mutation")
		return nil
	}
	s.log = append(s.log, who+": mutation")
	return fmt.Appendf(nil, `[{"op":"add","path":"/%s-%d","value":true}]`, who, n)
}

func (s *apiServer) apply(object, patch []byte) []byte {
	s.t.Helper()
	patched, err := conversion.ApplyPatch(object, patch)
	if err != nil {
		s.t.Fatal(err)
	}
	return patched.Raw
}

// TestReinvocation has the test scenarios of "Mutating Plugin ordering" in the KEP that took webhooks to GA. They differ in the time when hooks are
// called again for changes of later hooks: before the in-tree plugins, not after them.
func TestReinvocation(t *testing.T) {
	type turns = map[int]bool
	tests := []struct {
		name   string
		inTree turns
		hooks  map[string]turns // that ask for reinvocation, in the order of their names
		want   []string
	}{
		{
			"no reinvocation", turns{1: true}, map[string]turns{"webhook": {}},
			[]string{"in-tree: mutation", "webhook: no mutation"},
		},
		{
			"in-tree reinvocation only", turns{1: true}, map[string]turns{"webhook": {1: true}},
			[]string{"in-tree: mutation", "webhook: mutation", "in-tree: no mutation"},
		},
		{
			"full reinvocation", turns{1: true, 2: true}, map[string]turns{"webhook": {1: true, 2: true}},
			[]string{"in-tree: mutation", "webhook: mutation", "in-tree: mutation", "webhook: mutation"},
		},
		{
			"multiple webhooks, partial reinvocation", turns{1: true}, map[string]turns{"webhook-a": {1: true}, "webhook-b": {1: true}},
			[]string{
				"in-tree: mutation", "webhook-a: mutation", "webhook-b: mutation", "webhook-a: no mutation", "in-tree: no mutation",
			},
		},
		{
			"multiple webhooks, full reinvocation", turns{1: true},
			map[string]turns{"webhook-a": {1: true, 2: true}, "webhook-b": {1: true, 2: true}},
			[]string{
				"in-tree: mutation", "webhook-a: mutation", "webhook-b: mutation", "webhook-a: mutation", "webhook-b: mutation",
				"in-tree: no mutation",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &apiServer{t: t, inTree: test.inTree, hooks: test.hooks, times: map[string]int{}}
			var hooks []hook
			for _, name := range []string{"webhook", "webhook-a", "webhook-b"} {
				if test.hooks[name] != nil {
					hooks = append(hooks, hook{name: name, needed: true})
				}
			}
			s.serve(hooks)
			final := s.admit([]byte(`{"apiVersion":"v1","kind":"Pod"}`))
			if diff := cmp.Diff(test.want, s.log); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			for who, changes := range s.hooks {
				for n := range changes {
					if want := fmt.Sprintf(`"%s-%d"`, who, n); !bytes.Contains(final, []byte(want)) {
						t.Errorf("the final object %s lacks %s", final, want)
					}
				}
			}
		})
	}
}

// serve makes the dispatcher.
func (s *apiServer) serve(hooks []hook) {
	s.t.Helper()
	handlers := map[string]inprocess.Handler{}
	for name, changes := range s.hooks {
		handlers[name] = func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			v := &admissionv1.AdmissionResponse{Allowed: true}
			if v.Patch = s.turn(name, changes); v.Patch != nil {
				v.PatchType = "JSONPatch"
			}
			return v, nil
		}
	}
	snapshot := compile(s.t, nil, hooks)
	var err error
	s.dispatcher, err = dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: inprocess.New(handlers),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// The answer of a denied review has no object, and neither has a DELETE.
func TestADenialIsNoOutputThatAReinvocationKnows(t *testing.T) {
	snapshot := compile(t, nil, []hook{{name: "webhook", needed: true}})
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot},
		Streams: inprocess.New(map[string]inprocess.Handler{
			"webhook": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "no"}}, nil
			},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []admissionv1.Stage{mutate, admissionv1.Stage_STAGE_REINVOKE} {
		r := podReview(stage, "")
		r.Admission.Object = nil
		answer, err := d.Review(t.Context(), r)
		if err != nil || answer.Response.GetAllowed() {
			t.Errorf("%s: answer %v, error %v", stage, answer, err)
		}
	}
}
