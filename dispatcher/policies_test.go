package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// testPolicy is a policy on Pods that is a function.
type testPolicy struct {
	name   string
	ignore bool
	skip   string // its Why
	acted  bool   // has taken its actions for its failure
	say    func(ctx context.Context) (*admissionv1.AdmissionResponse, error)
}

func (p testPolicy) ID() string { return "ValidatingAdmissionPolicy/" + p.name }

func (testPolicy) Reinvocation() admissionregistrationv1.ReinvocationPolicyType {
	return admissionregistrationv1.NeverReinvocationPolicy
}

func (testPolicy) Stage() admissionv1.Stage { return validate }

func (testPolicy) Asks(string) []match.Question { return nil }

func (testPolicy) BindingNamespaces() *metav1.LabelSelector { return nil }

func (testPolicy) Constraints() *admissionregistrationv1.MatchResources {
	rule := hook{}.mutating().Rules[0]
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}}}
}

func (p testPolicy) FailurePolicy() admissionregistrationv1.FailurePolicyType {
	if p.ignore {
		return admissionregistrationv1.Ignore
	}
	return admissionregistrationv1.Fail
}

func (p testPolicy) Judge(ctx context.Context, _ *match.Attributes, _ *conversion.ResourceKind, _ error) (match.Judgement, error) {
	v, err := p.say(ctx)
	return match.Judgement{AdmissionResponse: v, Why: p.skip, Acted: p.acted}, err
}

func approves(context.Context) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func denies(message string) func(context.Context) (*admissionv1.AdmissionResponse, error) {
	return func(context.Context) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 422, Reason: "Invalid", Message: message}}, nil
	}
}

// refuses is a policy that fails under failurePolicy Fail.
func refuses(failure string) func(context.Context) (*admissionv1.AdmissionResponse, error) {
	return func(ctx context.Context) (*admissionv1.AdmissionResponse, error) {
		v, _ := denies("a: " + failure)(ctx)
		return v, errors.New(failure)
	}
}

// warns is a policy that fails and allows, with a warning.
func warns(context.Context) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"careful"}}, errors.New("no such key: a")
}

// withPolicies is a snapshot of policies and one validating hook.
func withPolicies(shadow string, policies ...testPolicy) *match.Snapshot {
	in := input([]hook{{name: "hook.test.dev"}}, nil)
	for _, p := range policies {
		in.Objects = append(in.Objects, match.Object{Policy: p})
		if p.name == shadow {
			in.Routes = append(in.Routes, match.RouteBinding{Configuration: p.ID(), Route: match.Route{Shadow: true}})
		}
	}
	snapshot, _ := match.Compile(in)
	return snapshot
}

// TestPoliciesAreJudgedBeforeHooksAreCalled has the outcome of each policy and of a hook behind them.
func TestPoliciesAreJudgedBeforeHooksAreCalled(t *testing.T) {
	spends := func(units int64) func(context.Context) (*admissionv1.AdmissionResponse, error) {
		return func(ctx context.Context) (*admissionv1.AdmissionResponse, error) {
			if err := policy.Spend(ctx, units); err != nil {
				return nil, err
			}
			return approves(ctx)
		}
	}
	failing := func(context.Context) (*admissionv1.AdmissionResponse, error) {
		return nil, errors.New("no such key: a")
	}
	for _, test := range []struct {
		name     string
		shadow   string
		policies []testPolicy
		outcomes string
		message  string
		failed   bool
		warning  string
	}{
		{
			name: "all allow", policies: []testPolicy{{name: "b", say: approves}, {name: "a", say: approves}},
			outcomes: "a allowed, b allowed, hook.test.dev allowed",
		},
		{
			name: "two deny", policies: []testPolicy{{name: "a", say: denies("no a")}, {name: "b", say: denies("no b")}, {name: "c", say: approves}},
			outcomes: "a denied, b denied, c allowed, hook.test.dev skipped", message: "2 policies denied the request: no a; no b",
		},
		{
			name: "one fails, and refuses", policies: []testPolicy{{name: "a", say: refuses("no such key: a")}},
			outcomes: "a failed, hook.test.dev skipped", message: "a: no such key: a", failed: true,
		},
		{
			name: "one fails, and one denies", policies: []testPolicy{{name: "a", say: refuses("no such key: a")}, {name: "b", say: denies("no b")}},
			outcomes: "a failed, b denied, hook.test.dev skipped", message: "2 policies denied the request: a: no such key: a; no b",
		},
		{
			name: "shadow fails", shadow: "a", policies: []testPolicy{{name: "a", say: refuses("no such key: a")}},
			outcomes: "a shadow: failed, hook.test.dev allowed",
		},
		{
			name: "one denies", policies: []testPolicy{{name: "a", say: denies("no a")}},
			outcomes: "a denied, hook.test.dev skipped", message: "no a",
		},
		{
			name: "an ignored failure", policies: []testPolicy{{name: "a", ignore: true, say: failing}},
			outcomes: "a failed-open, hook.test.dev allowed",
			warning:  `policy "a" failed (handler) and was skipped: its failure policy is Ignore`,
		},
		{
			name: "a failure for which another binding would deny", policies: []testPolicy{{name: "a", acted: true, say: warns}},
			outcomes: "a failed-open, hook.test.dev allowed", warning: "careful",
		},
		{
			name: "a failure of a policy that only warns", policies: []testPolicy{{name: "a", ignore: true, acted: true, say: warns}},
			outcomes: "a failed-open, hook.test.dev allowed", warning: "careful",
		},
		{
			name: "shadow of a failure that warns", shadow: "a", policies: []testPolicy{{name: "a", acted: true, say: warns}},
			outcomes: "a shadow: failed, hook.test.dev allowed",
		},
		{
			name: "shadow", shadow: "a", policies: []testPolicy{{name: "a", say: denies("no")}},
			outcomes: "a shadow: denied, hook.test.dev allowed",
		},
		{
			name: "a panic", policies: []testPolicy{{name: "a", say: func(context.Context) (*admissionv1.AdmissionResponse, error) { panic("at the policy") }}},
			outcomes: "a failed, hook.test.dev allowed", failed: true, message: `failed calling webhook "a": failed to call webhook: panic: the dispatcher panicked; the stack is in its log`,
		},
		{
			name: "the last unit", policies: []testPolicy{{name: "a", say: spends(dispatcher.MaxPolicyCost - 1)}, {name: "b", say: spends(1)}},
			outcomes: "a allowed, b allowed, hook.test.dev allowed",
		},
		{
			name:     "too much together",
			policies: []testPolicy{{name: "a", say: spends(dispatcher.MaxPolicyCost)}, {name: "b", ignore: true, say: spends(1)}},
			outcomes: "a allowed, b failed-open, hook.test.dev allowed",
			warning:  `policy "b" failed (handler) and was skipped: its failure policy is Ignore`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := over(t, withPolicies(test.shadow, test.policies...), instant{})
				r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
				r.AwaitShadows = true

				a, err := d.Review(t.Context(), r)

				if err != nil {
					t.Fatal(err)
				}
				var outcomes []string
				for _, o := range a.Outcomes {
					outcome := o.GetHook() + " " + o.GetOutcome()
					if o.GetShadow() != "" {
						outcome += ": " + o.GetShadow()
					}
					outcomes = append(outcomes, outcome)
				}
				if diff := cmp.Diff(test.outcomes, strings.Join(outcomes, ", ")); diff != "" {
					t.Error(diff)
				}
				if got := a.Response.GetStatus().GetMessage(); !strings.HasPrefix(got, test.message) || a.Response.GetAllowed() != (test.message == "") {
					t.Errorf("allowed %t with message %q, want %q", a.Response.GetAllowed(), got, test.message)
				}
				if a.Failed != test.failed {
					t.Errorf("failed %t, want %t", a.Failed, test.failed)
				}
				if got := strings.Join(a.Response.GetWarnings(), "\n"); got != test.warning {
					t.Errorf("warnings %q, want %q", got, test.warning)
				}
			})
		})
	}
}

// TestAFailureThatOnlyWarnsIsCounted has it in the metrics, the records and the audit annotations of a review that is admitted.
func TestAFailureThatOnlyWarnsIsCounted(t *testing.T) {
	snapshot, metrics, records := withPolicies("", testPolicy{name: "a", acted: true, say: warns}), prometheus.NewRegistry(), latency.NewRecorder(0)
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: instant{},
		Options: observe.Options{Metrics: metrics, Latencies: records},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)

	a, err := d.Review(t.Context(), r)

	if err != nil || a.Outcome() != review.OutcomeFailedOpen || a.Response.GetAuditAnnotations()[review.AuditOutcome] != string(review.OutcomeFailedOpen) {
		t.Errorf("%v, %s, %v", err, a.Outcome(), a.Response.GetAuditAnnotations())
	}
	if kept := records.Find(r.Admission.GetUid()); len(kept) != 1 || kept[0].Calls[0].Outcome != latency.OutcomeFailedOpen {
		t.Errorf("recorded %+v", kept)
	}
	got := samples(t, metrics)
	for _, want := range []string{"fail_open_total name=a type=validating", "failures_total kind=handler name=a type=validating"} {
		if !slices.Contains(got, want) {
			t.Errorf("metrics %q, want %q", got, want)
		}
	}
}

// TestTheRecordOfADenialNamesTheValidation of a policy, and not its message, which may have values of the request.
func TestTheRecordOfADenialNamesTheValidation(t *testing.T) {
	snapshot, records := withPolicies("", testPolicy{name: "a", skip: "validations[1] false", say: denies("no")}), latency.NewRecorder(0)
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: instant{}, Options: observe.Options{Latencies: records},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)

	if _, err := d.Review(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	if kept := records.Find(r.Admission.GetUid()); len(kept) != 1 || kept[0].Calls[0].Outcome != "denied" || kept[0].Calls[0].Reason != "validations[1] false" {
		t.Errorf("recorded %+v", kept)
	}
}

// TestAPolicyThatDoesNotApplyIsSkipped, in shadow too, as a hook that does not apply.
func TestAPolicyThatDoesNotApplyIsSkipped(t *testing.T) {
	for _, shadow := range []string{"", "a"} {
		snapshot, metrics, records := withPolicies(shadow, testPolicy{name: "a", skip: match.SkipBindings, say: approves}), prometheus.NewRegistry(), latency.NewRecorder(0)
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: instant{},
			Options: observe.Options{Metrics: metrics, Latencies: records},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
		r.AwaitShadows = true

		a, err := d.Review(t.Context(), r)

		if err != nil {
			t.Fatal(err)
		}
		if o := a.Outcomes[0]; o.GetHook() != "a" || o.GetOutcome() != "skipped" || o.GetShadow() != "" || o.GetReason() != match.SkipBindings {
			t.Errorf("in shadow %q: %v", shadow, o)
		}
		if kept := records.Find(r.Admission.GetUid()); shadow == "" && (len(kept) != 1 || kept[0].Calls[0].Outcome != "skipped" || kept[0].Calls[0].Reason != match.SkipBindings) {
			t.Errorf("recorded %+v", kept)
		}
		d.Close(t.Context())
		if got, want := samples(t, metrics), "skipped_total name=a reason=bindings type=validating"; !slices.Contains(got, want) {
			t.Errorf("in shadow %q: metrics %q, want %q", shadow, got, want)
		}
	}
}

// TestOneReviewOfAClusterEvaluatesPoliciesForLong has a policy that looks something up, and takes less than the free time, or more, while another review of the cluster, or of
// another cluster, is in the middle of a long evaluation. Both evaluate the policy anew once they may take long.
func TestOneReviewOfAClusterEvaluatesPoliciesForLong(t *testing.T) {
	for _, test := range []struct {
		cluster         string
		lookUps, length time.Duration
		waits           bool
	}{
		{"c", 0, dispatcher.FreeEvaluationTime - 1, false}, {"c", 0, dispatcher.FreeEvaluationTime + 1, true}, {"other", 0, dispatcher.FreeEvaluationTime + 1, false},
		{"c", time.Second / 2, dispatcher.FreeEvaluationTime - 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			var lookUps, length, evaluations, judged atomic.Int64
			length.Store(int64(dispatcher.FreeEvaluationTime + 1))
			d, _ := over(t, withPolicies("", testPolicy{name: "a", say: func(ctx context.Context) (*admissionv1.AdmissionResponse, error) {
				if evaluations.Add(1) == 2 { // of the first review, in its turn
					<-free
					return approves(ctx)
				}
				time.Sleep(time.Duration(lookUps.Load())) //nolint:forbidigo // of the bubble
				if err := ctx.Err(); err != nil {
					t.Errorf("look-ups have no time: %v", err)
				}
				interrupt := evaluation.NewInterrupt(policy.Evaluation(ctx))
				time.Sleep(time.Duration(length.Load())) //nolint:forbidigo // of the bubble
				if interrupt.Begin() != nil {
					return denies("interrupted")(ctx)
				}
				judged.Add(1)
				return approves(ctx)
			}}), instant{})
			var running sync.WaitGroup
			review := func(cluster string) {
				r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
				r.Admission.Cluster = cluster
				running.Go(func() {
					if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
						t.Errorf("%v %v", a.Response, err)
					}
				})
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble
			}
			review("c")
			lookUps.Store(int64(test.lookUps))
			length.Store(int64(test.length))
			review(test.cluster)

			if waits := judged.Load() == 0; waits != test.waits {
				t.Errorf("%+v: the second review waits: %t", test, waits)
			}
			close(free)
			running.Wait()
		})
	}
}

// instant is a backend whose hooks allow.
type instant struct{}

func (instant) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range b.Calls {
		done(i, yes())
	}
	return func(int) {}
}

// TestReviewsOfADispatcherWithAnEvaluationTimeDoNotWait has a policy that takes longer than the free time of others, in many reviews of a cluster at once.
func TestReviewsOfADispatcherWithAnEvaluationTimeDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshot := withPolicies("", testPolicy{name: "a", say: func(ctx context.Context) (*admissionv1.AdmissionResponse, error) {
			time.Sleep(time.Second) //nolint:forbidigo // of the bubble
			if evaluation.Over(policy.Evaluation(ctx)) != nil {
				return denies("interrupted")(ctx)
			}
			return approves(ctx)
		}})
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: instant{}, EvaluationTime: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				if a, err := d.Review(t.Context(), podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)); err != nil || !a.Response.GetAllowed() {
					t.Errorf("%v %v", a.Response, err)
				}
			})
		}
		running.Wait()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the reviews took %s, and one takes 1s", took)
		}
	})
}
