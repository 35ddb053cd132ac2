package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
)

// choosy are hooks in shadow that ask for the labels of a namespace.
func choosy(t *testing.T) *match.Snapshot {
	t.Helper()
	return compile(t, []hook{{name: "s.test.dev", shadow: true, selects: true}, {name: "v.test.dev"}},
		[]hook{{name: "z.test.dev", shadow: true, selects: true}, {name: "m.test.dev"}})
}

// TestAHookInShadowThatCannotBeMatchedRefusesNothing has it ask for the labels of a namespace that nobody knows.
func TestAHookInShadowThatCannotBeMatchedRefusesNothing(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		d, metrics := over(t, choosy(t), &deaf{})
		a := allowed(t, d, stage)
		if o := a.Outcomes[0]; o.GetOutcome() != "shadow" || !strings.Contains(o.GetReason(), "namespaces") {
			t.Errorf("%s: outcome %v", stage, o)
		}
		expectCounts(t, metrics, map[string]float64{"failed": 1})
		unexplained(t, d, stage)
		d.Close(t.Context())
		expectCounts(t, metrics, map[string]float64{"failed": 2})
	}
}

// TestAReviewDoesNotWaitForWhatAHookInShadowAsksTheCluster has a cluster that does not answer.
func TestAReviewDoesNotWaitForWhatAHookInShadowAsksTheCluster(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		synctest.Test(t, func(t *testing.T) {
			backend, metrics := &deaf{}, prometheus.NewRegistry()
			k := silent{static{snapshot: choosy(t)}}
			d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend, Options: observe.Options{Metrics: metrics}})
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			unexplained(t, d, stage)
			if took := time.Since(begun); took > 0 || len(backend.inShadow()) > 0 {
				t.Errorf("%s: answered after %s, %d calls in shadow", stage, took, len(backend.inShadow()))
			}
			<-time.After(time.Minute)
			synctest.Wait()
			expectCounts(t, metrics, map[string]float64{"failed": 1})

			unexplained(t, d, stage)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun = time.Now()
			d.Close(ctx)
			if took := time.Since(begun); took != time.Second {
				t.Errorf("%s: closed after %s", stage, took)
			}
			expectCounts(t, metrics, map[string]float64{"failed": 2})
		})
	}
}

// TestAHookInShadowThatDoesNotApplyIsNotAsked has a cluster that takes its time to say so, and one where it does.
func TestAHookInShadowThatDoesNotApplyIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, selected := range []bool{false, true} {
			backend, metrics := &deaf{}, prometheus.NewRegistry()
			var k knowledge = slow{static{snapshot: choosy(t)}, time.Second}
			if !selected {
				k = unlabelled{static{snapshot: choosy(t)}}
			}
			d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend, Options: observe.Options{Metrics: metrics}})
			if err != nil {
				t.Fatal(err)
			}
			unexplained(t, d, validate)
			<-time.After(2 * time.Second)
			calls := backend.inShadow()
			if (len(calls) == 1) != selected {
				t.Errorf("selected is %t: %d calls", selected, len(calls))
			}
			for _, c := range calls {
				if left := time.Until(c.Calls[0].Deadline); left != 8*time.Second {
					t.Errorf("the call has %s left of its time", left)
				}
				c.done(0, yes())
			}
			d.Close(t.Context())
			want := "shadow_total name=s.test.dev outcome=allowed type=validating"
			if !selected {
				want = "skipped_total name=s.test.dev reason=namespaceSelector type=validating"
			}
			if got := samples(t, metrics); !slices.Contains(got, want) {
				t.Errorf("metrics %q, want %q", got, want)
			}
		}
	})
}

// unlabelled is a cluster whose namespaces have no labels.
type unlabelled struct{ static }

func (u unlabelled) Cluster(string) match.Cluster { return u }

func (unlabelled) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

// twofold serves Pods in another group too. converts is the converted object; empty if it cannot be converted.
type twofold struct {
	static

	converts string
}

func (k twofold) Cluster(string) match.Cluster { return k }

func (twofold) Equivalents(schema.GroupVersionResource, string) ([]conversion.ResourceKind, error) {
	var ways []conversion.ResourceKind
	for _, group := range []string{"", "other.dev"} {
		gv := schema.GroupVersion{Group: group, Version: "v1"}
		ways = append(ways, conversion.ResourceKind{Resource: gv.WithResource("pods"), Kind: gv.WithKind("Pod")})
	}
	return ways, nil
}

func (k twofold) Convert(context.Context, []byte, schema.GroupVersionKind) ([]byte, error) {
	if k.converts == "" {
		return nil, errors.New("nobody converts")
	}
	return []byte(k.converts), nil
}

// TestAHookInShadowSeesItsVersion has it take another one than the hook that decides.
func TestAHookInShadowSeesItsVersion(t *testing.T) {
	equivalent, none := admissionregistrationv1.Equivalent, admissionregistrationv1.SideEffectClassNone
	other := hook{name: "s.test.dev"}.mutating()
	other.Rules[0].APIGroups, other.MatchPolicy = []string{"other.dev"}, &equivalent
	snapshot, _ := match.Compile(match.Input{
		Objects: []match.Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: other.Name, Rules: other.Rules, MatchPolicy: other.MatchPolicy, SideEffects: &none},
				{Name: "v.test.dev", Rules: hook{}.mutating().Rules, SideEffects: &none},
			},
		}}},
		Routes: []match.RouteBinding{
			{Configuration: "v", Hook: "s.test.dev", Route: match.Route{Stream: true, Hosts: []string{"host"}, Shadow: true}},
			{Configuration: "v", Hook: "v.test.dev", Route: match.Route{Stream: true, Hosts: []string{"host"}}},
		},
	})
	for converts, want := range map[string]string{`{"other":true}`: "allowed", "": "failed"} {
		for _, explain := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				backend, metrics := &deaf{}, prometheus.NewRegistry()
				k := twofold{static{snapshot: snapshot}, converts}
				d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend, Options: observe.Options{Metrics: metrics}})
				if err != nil {
					t.Fatal(err)
				}
				r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
				r.Explain = explain
				if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
					t.Fatalf("got %v, %v", a.Response, err)
				}
				for _, c := range backend.inShadow() {
					saw := c.Request
					if string(saw.GetObject().GetRaw()) != converts || saw.GetResource().GetGroup() != "other.dev" || saw.GetRequestResource().GetGroup() != "" {
						t.Errorf("the hook saw %v", saw)
					}
					if !bytes.Contains(bytes.Join(c.Body.Buffers(), nil), []byte(converts)) {
						t.Errorf("the body is %q", c.Body.Buffers())
					}
					c.done(0, yes())
				}
				d.Close(t.Context())
				expectCounts(t, metrics, map[string]float64{want: 1})
			})
		}
	}
}
