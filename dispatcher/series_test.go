package dispatcher_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/telemetry/series"
)

// hooksSeen are the values of the label name in all metrics of hooks, sorted.
func hooksSeen(t *testing.T, w watched) []string {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range families(t, w.metrics) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" {
					seen[l.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func verdictThatAllows() review.Result {
	return review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}}
}

func TestSeriesOfAHookAreThereBeforeItsFirstFailureAndGoWithIt(t *testing.T) {
	both := compile(t, []hook{{name: "a.test.dev"}, {name: "b.test.dev"}}, nil)
	w := watch(t, both, verdictThatAllows())
	w.dispatcher.Update(both)
	f := families(t, w.metrics)
	if n := len(f["portcullis_hook_failures_total"].GetMetric()); n != 2*int(review.FailureCancelled) {
		t.Errorf("%d series of failures before the first one", n)
	}
	if n := len(f["portcullis_hook_fail_open_total"].GetMetric()); n != 2 {
		t.Errorf("%d series of fail-open calls before the first one", n)
	}
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil {
		t.Fatal(err)
	}
	if got := hooksSeen(t, w); !slices.Equal(got, []string{"a.test.dev", "b.test.dev"}) {
		t.Errorf("series of %v", got)
	}
	w.dispatcher.Update(compile(t, []hook{{name: "b.test.dev"}}, nil))
	if got := hooksSeen(t, w); !slices.Equal(got, []string{"b.test.dev"}) {
		t.Errorf("after a.test.dev has gone: series of %v", got)
	}
	if _, err := w.dispatcher.Review(t.Context(), podReview(validate, `{}`)); err != nil { // still by both
		t.Fatal(err)
	}
	if got := hooksSeen(t, w); slices.Contains(got, "a.test.dev") {
		t.Errorf("after a review that had begun before: series of %v", got)
	}
}

// countersAtZero are the values of a label of the series of a counter that is at 0 in all of them, sorted.
func countersAtZero(t *testing.T, w watched, family, label string) (values []string) {
	t.Helper()
	for _, m := range families(t, w.metrics)[family].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				values = append(values, l.GetValue())
			}
		}
		if n := m.GetCounter().GetValue(); n != 0 {
			t.Errorf("a series of %s is %v at the start", family, n)
		}
	}
	slices.Sort(values)
	return values
}

func TestSeriesAreThereBeforeTheirFirstEvent(t *testing.T) {
	all := compile(t, []hook{{name: "a.test.dev"}, {name: "s.test.dev", shadow: true}}, nil)
	w := watch(t, all, verdictThatAllows())
	w.dispatcher.Update(all)
	w.dispatcher.UpdateClusters([]string{"east"})
	for _, test := range []struct {
		family, label string
		want          []string
	}{
		{"portcullis_hook_fail_closed_total", "name", []string{"a.test.dev", "s.test.dev"}},
		{"portcullis_hook_skipped_total", "reason", []string{"pending", "pending"}},
		{"portcullis_hook_shadow_total", "outcome", []string{"allowed", "denied", "dropped", "failed", "patched"}},
		{"portcullis_review_bypassed_total", "reason", []string{"break-glass", "group", "namespace", "user"}},
		{"portcullis_review_duration_seconds", "outcome", []string{"failed", "failed", "refused", "refused"}},
	} {
		if got := countersAtZero(t, w, test.family, test.label); !slices.Equal(got, test.want) {
			t.Errorf("%s has series of %s %v, want %v", test.family, test.label, got, test.want)
		}
	}
}

func TestTheNumberOfHooksAndClustersWithSeriesIsBounded(t *testing.T) {
	citest.Sequential(t)
	var hooks []hook
	for i := range observe.MaxHookSeries + 1 {
		hooks = append(hooks, hook{name: fmt.Sprintf("h%04d.test.dev", i)})
	}
	all := compile(t, hooks, nil)
	w := watch(t, all, verdictThatAllows())
	w.dispatcher.Update(all)
	clusters := make([]string, observe.MaxClusterSeries+2)
	for i := range clusters {
		clusters[i] = fmt.Sprintf("c%04d", i)
	}
	w.dispatcher.UpdateClusters(clusters)
	r := podReview(validate, `{}`)
	r.Admission.Cluster = clusters[len(clusters)-1]
	if _, err := w.dispatcher.Review(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := hooksSeen(t, w); len(got) != observe.MaxHookSeries+1 || got[0] != series.Other {
		t.Errorf("series of %d hooks, the first is %s", len(got), got[0])
	}
	f := families(t, w.metrics)
	for name, want := range map[string]float64{"portcullis_hooks_without_series": 1, "portcullis_clusters_without_series": 2} {
		if got := f[name].GetMetric()[0].GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	counted := false
	for _, m := range f["portcullis_review_duration_seconds"].GetMetric() {
		for _, l := range m.GetLabel() {
			counted = counted || l.GetName() == "cluster" && l.GetValue() == series.Other
		}
	}
	if !counted {
		t.Error("the review of a cluster without series is not counted")
	}
}

func TestPhasesOfCallsAreCounted(t *testing.T) {
	timing := review.Timing{Queued: time.Millisecond, Wire: 2 * time.Millisecond, Host: 4 * time.Millisecond}
	patch := &admissionv1.AdmissionResponse{
		Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/metadata","value":{}}]`),
	}
	snapshot := compile(t, []hook{{name: "v.test.dev"}}, []hook{{name: "m.test.dev"}})
	for stage, test := range map[admissionv1.Stage]struct {
		verdict *admissionv1.AdmissionResponse
		phases  []string
	}{
		mutate:   {patch, []string{"apply admit", "host admit", "queue admit", "wire admit"}},
		validate: {&admissionv1.AdmissionResponse{Allowed: true}, []string{"host validating", "queue validating", "wire validating"}},
	} {
		w := watch(t, snapshot, review.Result{Verdict: test.verdict, Timing: timing})
		if _, err := w.dispatcher.Review(t.Context(), podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`)); err != nil {
			t.Fatal(err)
		}
		seconds, bounds := map[string]float64{}, map[string][]float64{}
		for _, m := range families(t, w.metrics)["portcullis_hook_phase_duration_seconds"].GetMetric() {
			labels, h := m.GetLabel(), m.GetHistogram()
			seconds[labels[1].GetValue()+" "+labels[2].GetValue()] = h.GetSampleSum()
			if h.GetSampleCount() != 1 || h.GetZeroThreshold() == 0 {
				t.Errorf("%v: %d observations, or no native histogram", labels, h.GetSampleCount())
			}
			bounds[labels[2].GetValue()] = nil
			for _, b := range h.GetBucket() {
				bounds[labels[2].GetValue()] = append(bounds[labels[2].GetValue()], b.GetUpperBound())
			}
		}
		if got := slices.Sorted(maps.Keys(seconds)); !slices.Equal(got, test.phases) {
			t.Errorf("phases %q, want %q", got, test.phases)
		}
		kind := test.phases[len(test.phases)-1][len("wire "):]
		if seconds["queue "+kind] != .001 || seconds["wire "+kind] != .002 || seconds["host "+kind] != .004 {
			t.Errorf("seconds %v", seconds)
		}
		for phase, got := range bounds { // few, since there are four for each hook
			if !slices.Equal(got, []float64{.001, .01, .1, 1, 10}) {
				t.Errorf("%s: buckets %v", phase, got)
			}
		}
		if stage == mutate && seconds["apply admit"] <= 0 {
			t.Error("the patch took no time")
		}
	}
}
