package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// watched is a dispatcher and all that it lets operators see.
type watched struct {
	dispatcher *dispatcher.Dispatcher
	metrics    *prometheus.Registry
	spans      *tracetest.SpanRecorder
	log        *bytes.Buffer
}

// watch makes a dispatcher whose calls all end with one result.
func watch(t *testing.T, snapshot *match.Snapshot, result review.Result) watched {
	t.Helper()
	w := watched{metrics: prometheus.NewRegistry(), spans: tracetest.NewSpanRecorder(), log: &bytes.Buffer{}}
	var err error
	w.dispatcher, err = dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot},
		Options: observe.Options{
			Metrics: w.metrics, TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(w.spans)),
			Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		},
		Streams: start(func(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
			for i := range b.Calls {
				done(i, result)
			}
			return func(int) {}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// families are the metrics by name.
func families(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range all {
		byName[f.GetName()] = f
	}
	return byName
}

// samples are the metrics of hooks without their numbers, except metrics of conditions and phases.
func samples(t *testing.T, g prometheus.Gatherer) []string {
	t.Helper()
	var out []string
	for name, f := range families(t, g) {
		short, ok := strings.CutPrefix(name, "portcullis_hook_")
		if !ok || strings.HasPrefix(short, "match_condition_") || strings.HasPrefix(short, "phase_") {
			continue
		}
		for _, m := range f.GetMetric() {
			line := short
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func TestWhatCameOfAHookIsCountedAsKubernetesCountsIt(t *testing.T) {
	verdict := func(v *admissionv1.AdmissionResponse) review.Result { return review.Result{Verdict: v} }
	deny := func(code int32) review.Result {
		return verdict(&admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: code}})
	}
	patch := func(patch string) review.Result {
		return verdict(&admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(patch)})
	}
	const all = "name=x.test.dev operation=CREATE "
	for name, test := range map[string]struct {
		stage  admissionv1.Stage
		ignore bool
		result review.Result
		want   []string
	}{
		"a verdict that allows": {validate, false, verdict(&admissionv1.AdmissionResponse{Allowed: true}), []string{
			"admission_duration_seconds " + all + "rejected=false type=validating",
			"request_total code=200 " + all + "rejected=false type=validating",
		}},
		"a denial": {validate, true, deny(422), []string{
			"admission_duration_seconds " + all + "rejected=true type=validating",
			"rejection_total error_type=no_error " + all + "rejection_code=422 type=validating",
			"request_total code=422 " + all + "rejected=true type=validating",
		}},
		"a denial without a code, by a mutating hook": {mutate, false, deny(0), []string{
			"admission_duration_seconds " + all + "rejected=true type=admit",
			"rejection_total error_type=no_error " + all + "rejection_code=400 type=admit",
			"request_total code=400 " + all + "rejected=true type=admit",
		}},
		"a denial with a code out of the world": {validate, false, deny(99999), []string{
			"admission_duration_seconds " + all + "rejected=true type=validating",
			"rejection_total error_type=no_error " + all + "rejection_code=600 type=validating",
			"request_total code=600 " + all + "rejected=true type=validating",
		}},
		"a failure that refuses": {validate, false, review.Fail(review.FailureLost, "lost"), []string{
			"admission_duration_seconds " + all + "rejected=true type=validating",
			"fail_closed_total name=x.test.dev type=validating",
			"failures_total kind=lost name=x.test.dev type=validating",
			"rejection_total error_type=calling_webhook_error " + all + "rejection_code=503 type=validating",
			"request_total code=503 " + all + "rejected=true type=validating",
		}},
		"a failure that is let pass": {mutate, true, review.Fail(review.FailureLost, "lost"), []string{
			"admission_duration_seconds " + all + "rejected=false type=admit",
			"fail_open_total name=x.test.dev type=admit",
			"failures_total kind=lost name=x.test.dev type=admit",
			"request_total code=503 " + all + "rejected=false type=admit",
		}},
		"a malformed verdict, which is no verdict that allows": {
			validate, true, patch(`[]`), []string{
				"admission_duration_seconds " + all + "rejected=false type=validating",
				"fail_open_total name=x.test.dev type=validating",
				"failures_total kind=bad_answer name=x.test.dev type=validating",
				"request_total code=503 " + all + "rejected=false type=validating",
			},
		},
		"a patch that cannot be decoded": {mutate, false, patch(`{`), []string{
			"admission_duration_seconds " + all + "rejected=true type=admit",
			"fail_closed_total name=x.test.dev type=admit",
			"failures_total kind=bad_answer name=x.test.dev type=admit",
			"rejection_total error_type=calling_webhook_error " + all + "rejection_code=503 type=admit",
			"request_total code=503 " + all + "rejected=true type=admit",
		}},
		"a patch that does not apply": {mutate, true, patch(`[{"op":"remove","path":"/no"}]`), []string{
			"admission_duration_seconds " + all + "rejected=true type=admit",
			"fail_closed_total name=x.test.dev type=admit",
			"rejection_total error_type=apiserver_internal_error " + all + "rejection_code=0 type=admit",
			"request_total code=0 " + all + "rejected=true type=admit",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			validating, mutating := []hook{{name: "x.test.dev", ignore: test.ignore}}, []hook(nil)
			if test.stage == mutate {
				validating, mutating = mutating, validating
			}
			w := watch(t, compile(t, validating, mutating), test.result)
			if _, err := w.dispatcher.Review(t.Context(), podReview(test.stage, `{"kind":"Pod","apiVersion":"v1"}`)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, samples(t, w.metrics)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMetricsOfHooksHaveTheLabelsAndBucketsOfThoseOfWebhooks compares with the metrics that kube-apiserver's own code
// registers.
func TestMetricsOfHooksHaveTheLabelsAndBucketsOfThoseOfWebhooks(t *testing.T) {
	record := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Create, &metav1.CreateOptions{}, false, nil)
	admissionmetrics.Metrics.ObserveWebhook(t.Context(), "labels.test.dev", 0, false, record, "admit", 200)
	admissionmetrics.Metrics.ObserveWebhookRejection(t.Context(), "labels.test.dev", "admit", "CREATE", "no_error", 400)
	admissionmetrics.Metrics.ObserveWebhookFailOpen(t.Context(), "labels.test.dev", "admit")
	upstream := families(t, legacyregistry.DefaultGatherer)

	w := watch(t, compile(t, []hook{{name: "open.test.dev", ignore: true}, {name: "closed.test.dev"}}, nil),
		review.Fail(review.FailureLost, "lost"))
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil {
		t.Fatal(err)
	}
	here := families(t, w.metrics)
	for name, theirs := range map[string]string{
		"admission_duration_seconds": "admission_duration_seconds", "request_total": "request_total",
		"rejection_total": "rejection_count", "fail_open_total": "fail_open_count",
	} {
		ours, upstreams := here["portcullis_hook_"+name], upstream["apiserver_admission_webhook_"+theirs]
		if ours == nil || upstreams == nil {
			t.Fatalf("%s: ours %v, upstream %v", name, ours, upstreams)
		}
		if diff := cmp.Diff(labels(upstreams), labels(ours)); diff != "" {
			t.Errorf("%s: labels (-kube-apiserver +portcullis):\n%s", name, diff)
		}
		for _, bound := range bounds(upstreams) {
			if !slices.Contains(bounds(ours), bound) {
				t.Errorf("%s: no bucket ends at %v", name, bound)
			}
		}
	}
}

func labels(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, l := range f.GetMetric()[0].GetLabel() {
		names[l.GetName()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func bounds(f *dto.MetricFamily) []float64 {
	var out []float64
	for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
		out = append(out, b.GetUpperBound())
	}
	return out
}

func TestLabelsTakeNoValuesThatCallersChoose(t *testing.T) {
	w := watch(t, compile(t, []hook{{name: "x.test.dev"}}, nil), review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	w.dispatcher.UpdateClusters(nil)
	for i := range 50 {
		r := podReview(validate, `{}`)
		r.Stage = validate + admissionv1.Stage(i%2*1000)
		r.Admission.Operation, r.Admission.Cluster, r.Admission.Uid = fmt.Sprintf("MAKE%d", i), fmt.Sprintf("c%d", i), fmt.Sprintf("u%d", i)
		if _, err := w.dispatcher.Review(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"admission_duration_seconds name=x.test.dev operation=other rejected=false type=validating",
		"request_total code=200 name=x.test.dev operation=other rejected=false type=validating",
	}
	if diff := cmp.Diff(want, samples(t, w.metrics)); diff != "" {
		t.Errorf("metrics of hooks (-want +got):\n%s", diff)
	}
	if n := len(families(t, w.metrics)["portcullis_review_duration_seconds"].GetMetric()); n > 2 {
		t.Errorf("%d kinds of reviews", n)
	}
}

// TestCountersAreCalledTheSameInBothFormats has Prometheus in mind, which asks for OpenMetrics if it can: there, a counter
// whose name does not end in _total is given another name.
func TestCountersAreCalledTheSameInBothFormats(t *testing.T) {
	w := watch(t, compile(t, []hook{{name: "open.test.dev", ignore: true}, {name: "closed.test.dev"}}, nil),
		review.Fail(review.FailureLost, "lost"))
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil {
		t.Fatal(err)
	}
	for name, f := range families(t, w.metrics) {
		if f.GetType() == dto.MetricType_COUNTER && !strings.HasSuffix(name, "_total") {
			t.Errorf("the counter %s does not end in _total", name)
		}
	}
}

func TestTimesCarryTheTraceInWhichTheyWereTaken(t *testing.T) {
	w := watch(t, compile(t, []hook{{name: "x.test.dev"}}, nil), review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil {
		t.Fatal(err)
	}
	want := w.spans.Ended()[0].SpanContext().TraceID().String()
	for _, name := range []string{"portcullis_review_duration_seconds", "portcullis_hook_admission_duration_seconds"} {
		var got []string
		for _, b := range families(t, w.metrics)[name].GetMetric()[0].GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				got = append(got, l.GetName()+"="+l.GetValue())
			}
		}
		if !slices.Equal(got, []string{"trace_id=" + want}) {
			t.Errorf("%s: exemplars %q, want the trace %s", name, got, want)
		}
	}
}

func TestWhyAHookFailedIsInTheLogAndInTheTraceOnce(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		w := watch(t, compile(t, []hook{{name: "x.test.dev", ignore: ignore}}, nil),
			review.Result{Failure: &review.Failure{Kind: review.FailureHandler, Err: errors.New("no database")}, Timing: review.Timing{Instance: "host-1"}})
		r := podReview(validate, `{"metadata":{"generateName":"web-6f-"}}`) // as each Pod of a ReplicaSet
		r.Admission.Namespace, r.Admission.Name, r.Admission.UserInfo = "n", "", &admissionv1.UserInfo{Username: "alice"}
		a, err := w.dispatcher.Review(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		a.Outcomes = nil // for the operator, who asked for them
		if strings.Contains(fmt.Sprint(a), "no database") {
			t.Errorf("the client is told: %v", a)
		}
		policy, outcome := admissionregistrationv1.Fail, "failed"
		if ignore {
			policy, outcome = admissionregistrationv1.Ignore, "failed-open"
		}
		_, line, _ := strings.Cut(w.log.String(), " ")
		line = regexp.MustCompile(`duration=\S+`).ReplaceAllString(line, "duration=D")
		want := `level=WARN msg="hook failed" uid=u cluster=c stage=validate configuration=v hook=x.test.dev round=0 operation=CREATE resource=pods outcome=` + outcome + ` kind=handler policy=` +
			string(policy) + ` timeout=10s error="no database" duration=D namespace=n name=web-6f-* instance=host-1 trace_id=` +
			w.spans.Ended()[0].SpanContext().TraceID().String() + "\n"
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if s := w.spans.Ended()[0].Status(); s.Description != "no database" {
			t.Errorf("the span says %+v", s)
		}
	}
}

// TestAFailureIsToldFromADenial: a denial is a result. A review that is refused since no verdict came is an error of the mesh,
// at every level that somebody may look at.
func TestAFailureIsToldFromADenial(t *testing.T) {
	deny := review.Result{Verdict: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 403}}}
	for name, test := range map[string]struct {
		stage   admissionv1.Stage
		selects bool
		ignore  bool
		result  review.Result
		want    string
		review  codes.Code // of the span
		call    codes.Code
	}{
		"a denial":                             {stage: validate, result: deny, want: "denied"},
		"a denial by a hook that is fail-open": {stage: mutate, ignore: true, result: deny, want: "denied"},
		"a failure that refuses":               {stage: validate, result: review.Fail(review.FailureLost, "lost"), want: "failed", review: codes.Error, call: codes.Error},
		"a failure in any of the stages":       {stage: admissionv1.Stage_STAGE_ADMIT, result: review.Fail(review.FailureLost, "lost"), want: "failed", review: codes.Error, call: codes.Error},
		"a failure that is let pass":           {stage: mutate, ignore: true, result: review.Fail(review.FailureLost, "lost"), want: "failed-open", call: codes.Error},
		"a hook that cannot be matched":        {stage: validate, selects: true, result: deny, want: "failed", review: codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			hooks := []hook{{name: "x.test.dev", ignore: test.ignore, selects: test.selects}}
			validating, mutating := hooks, []hook(nil)
			if test.stage == mutate {
				validating, mutating = mutating, validating
			}
			w := watch(t, compile(t, validating, mutating), test.result)
			a, err := w.dispatcher.Review(t.Context(), podReview(test.stage, `{"kind":"Pod","apiVersion":"v1"}`))
			if err != nil {
				t.Fatal(err)
			}
			if a.Failed != (test.want == "failed") {
				t.Errorf("Failed = %t", a.Failed)
			}
			if got := a.Response.GetAuditAnnotations()[review.AuditOutcome]; got != test.want {
				t.Errorf("the audit annotation says %q", got)
			}
			for _, l := range families(t, w.metrics)["portcullis_review_duration_seconds"].GetMetric()[0].GetLabel() {
				if l.GetName() == "outcome" && l.GetValue() != test.want {
					t.Errorf("it is counted as %s", l.GetValue())
				}
			}
			for _, s := range w.spans.Ended() {
				want := test.call
				if strings.HasPrefix(s.Name(), "review ") {
					want = test.review
					if o := attribute.String("portcullis.outcome", test.want); !slices.Contains(s.Attributes(), o) {
						t.Errorf("its span says %v", s.Attributes())
					}
				}
				if s.Status().Code != want {
					t.Errorf("the status of %s is %v, want %v", s.Name(), s.Status(), want)
				}
			}
		})
	}
}

func TestASpanSaysWhatCameOfItsCall(t *testing.T) {
	w := watch(t, compile(t, []hook{{name: "x.test.dev", ignore: true}}, nil),
		review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[]`)}})
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil {
		t.Fatal(err)
	}
	span := w.spans.Ended()[0]
	for _, want := range []attribute.KeyValue{
		attribute.String("portcullis.outcome", "failed-open"), attribute.String("error.type", "bad_answer"),
	} {
		if !slices.Contains(span.Attributes(), want) {
			t.Errorf("attributes %v, want %v among them", span.Attributes(), want)
		}
	}
	if span.Name() != "call x.test.dev" || span.Status().Description == "" {
		t.Errorf("%s: status %+v", span.Name(), span.Status())
	}
}

func TestHooksThatAreNotAskedAreCountedByWhatLeavesThemOut(t *testing.T) {
	everything := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
	policy, none := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	webhook := func(name string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{Name: name, Rules: everything, FailurePolicy: &policy, SideEffects: &none}
	}
	selected, other, excluded, broken := webhook("selected.test.dev"), webhook("other.test.dev"), webhook("excluded.test.dev"), webhook("broken.test.dev")
	selected.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "no"}}
	other.Rules = []admissionregistrationv1.RuleWithOperations{{Operations: everything[0].Operations, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"*"},
	}}}
	excluded.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
	broken.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "fails", Expression: "object.no.no == 1"}}
	snapshot, _ := match.Compile(match.Input{Revision: "r1", Objects: []match.Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{selected, other, excluded, broken},
	}}}})
	w := watch(t, snapshot, review.Result{})
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"skipped_total name=broken.test.dev reason=matchConditions type=validating",
		"skipped_total name=excluded.test.dev reason=matchConditions type=validating",
		"skipped_total name=selected.test.dev reason=objectSelector type=validating",
	}
	if diff := cmp.Diff(want, samples(t, w.metrics)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	got := families(t, w.metrics)
	for name, hook := range map[string]string{
		"portcullis_hook_match_condition_evaluation_errors_total": broken.Name,
		"portcullis_hook_match_condition_evaluation_seconds":      excluded.Name,
	} {
		if !slices.ContainsFunc(got[name].GetMetric(), func(m *dto.Metric) bool {
			return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "name" && l.GetValue() == hook })
		}) {
			t.Errorf("%s does not name %s: %v", name, hook, got[name])
		}
	}
}

func TestEveryAnswerSaysByWhichConfigurationItWasMade(t *testing.T) {
	w := watch(t, compile(t, []hook{{name: "v.test.dev"}}, []hook{{name: "m.test.dev", needed: true}}),
		review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	for _, stage := range []admissionv1.Stage{
		validate, mutate, admissionv1.Stage_STAGE_REINVOKE, admissionv1.Stage_STAGE_ADMIT, // nobody is asked for the third
	} {
		a, err := w.dispatcher.Review(t.Context(), podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"revision": "r1"}, a.Response.GetAuditAnnotations()); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", stage, diff)
		}
	}
}
