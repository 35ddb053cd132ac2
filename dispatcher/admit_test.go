package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

const admit = admissionv1.Stage_STAGE_ADMIT

// says is a hook that says the same to everybody, and notes who asked with which object.
type says struct {
	mu   sync.Mutex
	seen []string
}

func (s *says) hook(name string, answer *admissionv1.AdmissionResponse) inprocess.Handler {
	return func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, fmt.Sprintf("%s %d %s", name, r.GetObjectRevision(), r.GetObject().GetRaw()))
		return answer, nil
	}
}

// inProcess is a dispatcher whose hooks are functions.
func inProcess(t *testing.T, k knowledge, handlers map[string]inprocess.Handler) *dispatcher.Dispatcher {
	t.Helper()
	backend := inprocess.New(handlers)
	t.Cleanup(backend.Wait)
	d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// counting counts how often the configuration is asked for.
type counting struct {
	static

	asked int
}

func (c *counting) Acquire(ctx context.Context, cluster string, bytes int64) (*match.Snapshot, string, error) {
	c.asked++
	return c.static.Acquire(ctx, cluster, bytes)
}

// patching adds a label that no other hook adds.
func patching(name string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		Allowed: true, PatchType: "JSONPatch", Patch: fmt.Appendf(nil, `[{"op":"add","path":"/%s","value":true}]`, name),
		Warnings: []string{name + " warns"}, AuditAnnotations: map[string]string{"said": name},
	}
}

func TestAdmitAsksMutatingHooksAndThenValidatingOnesOnWhatTheyMade(t *testing.T) {
	var s says
	snapshot := compile(t, []hook{{name: "v"}}, []hook{{name: "m1", needed: true}, {name: "m2"}})
	k := &counting{static: static{snapshot: snapshot}}
	validates := &admissionv1.AdmissionResponse{
		Allowed: true, Warnings: []string{"v warns"}, AuditAnnotations: map[string]string{"said": "v"},
	}
	d := inProcess(t, k, map[string]inprocess.Handler{
		"m1": s.hook("m1", patching("m1")), "m2": s.hook("m2", patching("m2")), "v": s.hook("v", validates),
	})
	answer, err := d.Review(t.Context(), podReview(admit, `{"kind":"Pod","apiVersion":"v1"}`))
	if err != nil {
		t.Fatal(err)
	}
	both := `{"apiVersion":"v1","kind":"Pod","m1":true,"m2":true}`
	want := []string{
		`m1 0 {"kind":"Pod","apiVersion":"v1"}`,
		`m2 1 {"apiVersion":"v1","kind":"Pod","m1":true}`,
		`m1 2 ` + both, // once more, for the change of m2
		`v 1 ` + both,
	}
	if diff := cmp.Diff(want, s.seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	response := answer.Response
	patched, err := conversion.ApplyPatch([]byte(`{"kind":"Pod","apiVersion":"v1"}`), response.GetPatch())
	if err != nil || string(patched.Raw) != both || string(answer.Object) != both {
		t.Errorf("the patch %s makes %s of the object (error %v), the answer says %s", response.GetPatch(), patched.Raw, err, answer.Object)
	}
	if !response.GetAllowed() || response.GetUid() != "u" || response.GetPatchType() != "JSONPatch" || answer.Revision != "r1" {
		t.Errorf("answer %v at %q", response, answer.Revision)
	}
	for _, name := range []string{"m1", "m2", "v"} {
		if !slices.Contains(response.GetWarnings(), name+" warns") || response.GetAuditAnnotations()[name+".said"] != name {
			t.Errorf("%s is not heard in warnings %q and annotations %v", name, response.GetWarnings(), response.GetAuditAnnotations())
		}
	}
	var hooks []string
	for _, o := range answer.Outcomes {
		hooks = append(hooks, o.GetHook()+" "+o.GetOutcome())
	}
	if diff := cmp.Diff([]string{"m1 patched", "m2 patched", "m1 allowed", "m2 skipped", "v allowed"}, hooks); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if k.asked != 1 {
		t.Errorf("judged by %d configurations", k.asked)
	}
}

func TestADenialInEitherStageIsTheAnswerOfAdmit(t *testing.T) {
	denies := &admissionv1.AdmissionResponse{
		Warnings: []string{"denier warns"}, Status: &admissionv1.Status{Message: "no", Code: 409, Reason: "Conflict"},
	}
	allows := &admissionv1.AdmissionResponse{Allowed: true}
	for _, test := range []struct {
		name                string
		mutating, validates *admissionv1.AdmissionResponse
		who                 string
		asked               int
		outcomes            []string
	}{
		{"by a mutating hook", denies, allows, "m", 1, []string{"m denied", "v skipped"}},
		{"by a validating hook", patching("m"), denies, "v", 2, []string{"m patched", "m skipped", "v denied"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s says
			snapshot := compile(t, []hook{{name: "v"}}, []hook{{name: "m"}})
			d := inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{
				"m": s.hook("m", test.mutating), "v": s.hook("v", test.validates),
			})
			answer, err := d.Review(t.Context(), podReview(admit, `{"kind":"Pod","apiVersion":"v1"}`))
			if err != nil {
				t.Fatal(err)
			}
			response := answer.Response
			want := &admissionv1.Status{
				Status: "Failure", Message: fmt.Sprintf("hook %q denied the request: no", test.who), Code: 409, Reason: "Conflict",
			}
			if diff := cmp.Diff(want, response.GetStatus(), protocmp.Transform()); diff != "" || response.GetAllowed() || response.GetPatch() != nil {
				t.Errorf("answer %v, status (-want +got):\n%s", response, diff)
			}
			if !slices.Contains(response.GetWarnings(), "denier warns") || len(s.seen) != test.asked {
				t.Errorf("warnings %q, calls %q", response.GetWarnings(), s.seen)
			}
			var outcomes []string
			for _, o := range answer.Outcomes {
				outcomes = append(outcomes, o.GetHook()+" "+o.GetOutcome())
			}
			if diff := cmp.Diff(test.outcomes, outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// /admit equals /mutate, then /validate on the mutated object, with random answers of hooks. At most one validating hook denies: of several the first
// to answer counts, and that differs each time.
func TestAdmitIsMutateAndThenValidate(t *testing.T) {
	const cases, denying = 300, 2
	random := rand.New(rand.NewPCG(1, 2))
	answers := []func(name string) (*admissionv1.AdmissionResponse, error){
		func(string) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		},
		func(name string) (*admissionv1.AdmissionResponse, error) { return patching(name), nil },
		func(name string) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{Warnings: []string{name}, Status: &admissionv1.Status{Message: name}}, nil
		},
		func(string) (*admissionv1.AdmissionResponse, error) { return nil, errors.New("broken") },
	}
	for range cases {
		hooks := map[admissionv1.Stage][]hook{}
		handlers := map[string]inprocess.Handler{}
		for _, stage := range []admissionv1.Stage{mutate, validate} {
			denied := false
			for i := range random.IntN(4) {
				h := hook{name: fmt.Sprintf("%s%d", stage.String()[6:7], i), ignore: random.IntN(2) == 0, needed: random.IntN(2) == 0}
				hooks[stage] = append(hooks[stage], h)
				chosen := random.IntN(len(answers)+3) % len(answers) // more often an answer that allows
				if denied && chosen == denying {
					chosen = 0
				}
				denied = denied || (chosen == denying && stage == validate)
				answer := answers[chosen]
				handlers[h.name] = func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
					return answer(h.name)
				}
			}
		}
		snapshot := compile(t, hooks[validate], hooks[mutate])
		d := inProcess(t, static{snapshot: snapshot}, handlers)
		const pod = `{"apiVersion":"v1","kind":"Pod"}`
		got, err := d.Review(t.Context(), podReview(admit, pod))
		if err != nil {
			t.Fatal(err)
		}
		want, err := d.Review(t.Context(), podReview(mutate, pod))
		if err != nil {
			t.Fatal(err)
		}
		if want.Response.GetAllowed() {
			patched, err := conversion.ApplyPatch([]byte(pod), want.Response.GetPatch())
			if err != nil {
				t.Fatal(err)
			}
			second, err := d.Review(t.Context(), podReview(validate, string(patched.Raw)))
			if err != nil {
				t.Fatal(err)
			}
			want.Response.Allowed, want.Response.Status = second.Response.GetAllowed(), second.Response.GetStatus()
		}
		type verdict struct {
			Allowed bool
			Status  *admissionv1.Status
			Patch   string
		}
		patch := func(r *admissionv1.AdmissionResponse) string {
			if !r.GetAllowed() {
				return ""
			}
			return string(r.GetPatch())
		}
		if diff := cmp.Diff(
			verdict{want.Response.GetAllowed(), withoutCulprit(want.Response.GetStatus()), patch(want.Response)},
			verdict{got.Response.GetAllowed(), withoutCulprit(got.Response.GetStatus()), string(got.Response.GetPatch())},
			protocmp.Transform(),
		); diff != "" {
			t.Fatalf("hooks %+v (-stage by stage +admit):\n%s", hooks, diff)
		}
	}
}

// withoutCulprit is a status whose message says less: not where a failed call spent its time, which differs from call to call.
func withoutCulprit(s *admissionv1.Status) *admissionv1.Status {
	if s == nil {
		return nil
	}
	s = proto.CloneOf(s)
	s.Message, _, _ = strings.Cut(s.GetMessage(), " [")
	return s
}

// A mutating hook that hangs and fails open leaves the validating hooks time to be asked.
func TestAdmitLeavesTimeToTheValidatingHooks(t *testing.T) {
	for _, test := range []struct {
		name             string
		timeout, allowed time.Duration
	}{
		{"as much as they may need", 2 * time.Second, 8 * time.Second},
		{"half of it at most", 9 * time.Second, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				snapshot := compile(t, []hook{{name: "v", time: test.timeout}}, []hook{{name: "m", ignore: true, time: time.Minute}})
				var asked time.Duration
				d := inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{
					"m": func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					},
					"v": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
						asked = time.Since(begun)
						return &admissionv1.AdmissionResponse{Allowed: true}, nil
					},
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				answer, err := d.Review(ctx, podReview(admit, `{}`))
				if err != nil || !answer.Response.GetAllowed() {
					t.Fatalf("got %v, %v; want it allowed without the hook that hangs", answer.Response, err)
				}
				if asked > test.allowed || asked < test.allowed-dispatcher.MaxAnswerReserve {
					t.Errorf("the validating hook is asked after %s, want %s less the reserve", asked, test.allowed)
				}
			})
		})
	}
}

// However long the hooks take, at any stage, the answer is there before the caller gives up.
func TestTheAnswerComesInTime(t *testing.T) {
	hang := func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	stages := map[admissionv1.Stage]string{mutate: `"m2"`, admissionv1.Stage_STAGE_REINVOKE: `"m2"`, validate: `"v2"`, admit: `"v2"`}
	for stage, last := range stages {
		for _, ignore := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				hooks := func(names ...string) (all []hook) {
					for _, name := range names {
						all = append(all, hook{name: name, ignore: ignore, needed: true, time: time.Minute})
					}
					return all
				}
				snapshot := compile(t, hooks("v1", "v2"), hooks("m1", "m2"))
				d := inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{"v1": hang, "v2": hang, "m1": hang, "m2": hang})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				answer, err := d.Review(ctx, podReview(stage, `{}`))
				if err != nil || answer.Response.GetAllowed() != ignore || ctx.Err() != nil {
					t.Errorf("%v: got %v, %v, context %v; want allowed %t in time", stage, answer.Response, err, ctx.Err(), ignore)
				}
				if open := strings.Join(answer.Response.GetWarnings(), "\n"); ignore && !strings.Contains(open, last) {
					t.Errorf("%v: warnings %q, want all that were skipped", stage, open)
				}
			})
		}
	}
}

func TestAdmitOfARequestWithoutObject(t *testing.T) {
	var s says
	snapshot := compile(t, []hook{{name: "v"}}, []hook{{name: "m"}})
	allows := &admissionv1.AdmissionResponse{Allowed: true}
	d := inProcess(t, static{snapshot: snapshot}, map[string]inprocess.Handler{
		"m": s.hook("m", allows), "v": s.hook("v", allows),
	})
	r := podReview(admit, "")
	r.Admission.Operation, r.Admission.Object, r.Admission.OldObject = "DELETE", nil, r.Admission.GetObject()
	answer, err := d.Review(t.Context(), r)
	if err != nil || !answer.Response.GetAllowed() || answer.Response.GetPatch() != nil {
		t.Errorf("got %v, %v", answer.Response, err)
	}
	if diff := cmp.Diff([]string{"m 0 ", "v 0 "}, s.seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
