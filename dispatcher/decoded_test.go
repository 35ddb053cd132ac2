package dispatcher_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// decoding is a dispatcher with one hook, and a ledger that its reviews are booked on.
type decoding struct {
	*dispatcher.Dispatcher

	ledger *memory.Ledger
}

func newDecoding(t *testing.T, budget int64, verdict *admissionv1.AdmissionResponse, change func(*admissionregistrationv1.MutatingWebhook)) *decoding {
	t.Helper()
	return newDecodingUnder(t, nil, budget, verdict, change)
}

// newDecodingUnder is newDecoding with a bypass.
func newDecodingUnder(
	t *testing.T, bypass *match.Bypass, budget int64, verdict *admissionv1.AdmissionResponse, change func(*admissionregistrationv1.MutatingWebhook),
) *decoding {
	t.Helper()
	x := hook{name: "a.test.dev"}.mutating()
	change(&x)
	m := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []admissionregistrationv1.MutatingWebhook{x},
	}
	snapshot, findings := match.Compile(match.Input{
		Revision: "r1", Objects: []match.Object{{Mutating: m}}, Bypasses: map[string]*match.Bypass{"c": bypass},
		Routes: []match.RouteBinding{{Configuration: "m", Route: match.Route{Stream: true, Hosts: []string{"host"}}}},
	})
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			t.Fatal(f)
		}
	}
	ledger, err := memory.New(memory.Options{Total: budget})
	if err != nil {
		t.Fatal(err)
	}
	types, known := builtin.New(builtin.Options{}), static{snapshot: snapshot}
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: known, Clusters: known, Streams: atOnce{verdict},
		Codec: func(a conversion.Allowance) chain.Codec { return types.NewPatchSession(a) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &decoding{d, ledger}
}

// review judges a Pod while others hold so many bytes.
func (d *decoding) review(t *testing.T, others int64, pod string) (review.Answer, error) {
	t.Helper()
	return d.reviewBy(t, "", others, pod)
}

// reviewBy is review of a request that came by an entry.
func (d *decoding) reviewBy(t *testing.T, entry string, others int64, pod string) (review.Answer, error) {
	t.Helper()
	held, err := d.ledger.Reserve("others", others)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	reservation, err := d.ledger.Reserve("c", int64(len(pod)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	r := podReview(mutate, pod)
	r.Reservation, r.Explain, r.Entry.Name = reservation, false, entry
	answer, err := d.Review(ctx, r)
	reservation.Release()
	if booked := d.ledger.InUse() - others; booked != 0 {
		t.Errorf("%d bytes are still booked", booked)
	}
	return answer, err
}

// emptyObjects is a Pod of n bytes of empty objects.
func emptyObjects(n int) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"x":[` + strings.Repeat(`{},`, n/3) + `{}]}`
}

// manyLabels is a Pod with n bytes of labels.
func manyLabels(n int) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"` + strings.Repeat("x", n) + `"}}}`
}

// The memory of a decoded object is booked before decoding. Without memory now the review is not judged, whatever the failure policy: its caller
// tries again. An object that can never fit is refused.
func TestDecodedObjectsAreBooked(t *testing.T) {
	condition := func(w *admissionregistrationv1.MutatingWebhook) {
		w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "kind", Expression: `object.kind == "Pod"`}}
	}
	selector := func(w *admissionregistrationv1.MutatingWebhook) {
		w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "a", Operator: metav1.LabelSelectorOpExists,
		}}}
	}
	for name, test := range map[string]struct {
		needs  func(*admissionregistrationv1.MutatingWebhook)
		pod    string
		others int64
		code   int32 // 0 for an allow
		again  bool
	}{
		"a condition, with room":       {condition, emptyObjects(70_000), 0, 0, false},
		"a condition, without room":    {condition, emptyObjects(70_000), 3_500_000, 0, true},
		"a condition, never with room": {condition, emptyObjects(300_000), 0, 413, false},
		"labels, with room":            {selector, manyLabels(300_000), 0, 0, false},
		"labels, without room":         {selector, manyLabels(300_000), 3_500_000, 0, true},
		"labels, never with room":      {selector, manyLabels(700_000), 0, 413, false},
		"few labels":                   {selector, manyLabels(4000), 4_100_000, 0, false},
	} {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				d := newDecoding(t, 8<<20, &admissionv1.AdmissionResponse{Allowed: true}, func(w *admissionregistrationv1.MutatingWebhook) {
					w.FailurePolicy = &policy
					test.needs(w)
				})
				answer, err := d.review(t, test.others, test.pod)
				var full *memory.FullError
				if again := errors.Is(err, review.ErrNoMemory) && errors.As(err, &full); again != test.again || err != nil && !again {
					t.Fatalf("error %v, want one to try again: %t", err, test.again)
				}
				if err == nil && answer.Response.GetStatus().GetCode() != test.code || answer.Response.GetAllowed() != (test.code == 0 && err == nil) {
					t.Errorf("answer %v", answer.Response)
				}
			})
		}
	}
}

// An entry that fails open lets a request pass that is to be sent again. It may have been made before a hook failed closed: then
// the review is refused.
func TestAnEntryThatFailsOpenHidesNoHookThatFailsClosed(t *testing.T) {
	const others = 3_500_000
	for _, test := range []struct {
		entry  string
		policy admissionregistrationv1.FailurePolicyType
		again  bool
	}{
		{"", admissionregistrationv1.Fail, true},
		{match.EntryFailOpen, admissionregistrationv1.Fail, false},
		{match.EntryFailOpen, admissionregistrationv1.Ignore, true},
		{match.EntryFailClosed, admissionregistrationv1.Fail, true},
		{match.EntryFailClosed, admissionregistrationv1.Ignore, true},
	} {
		t.Run(test.entry+", "+string(test.policy), func(t *testing.T) {
			d := newDecoding(t, 8<<20, &admissionv1.AdmissionResponse{Allowed: true}, func(w *admissionregistrationv1.MutatingWebhook) {
				w.FailurePolicy = &test.policy
				w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "kind", Expression: `object.kind == "Pod"`}}
			})
			answer, err := d.reviewBy(t, test.entry, others, emptyObjects(70_000))
			if again := errors.Is(err, review.ErrNoMemory); again != test.again {
				t.Fatalf("error %v, want one to try again: %t", err, test.again)
			}
			if r := answer.Response; !test.again && (r.GetAllowed() || r.GetStatus().GetCode() != 429) {
				t.Errorf("answer %v", r)
			}
		})
	}
}

// The memory of a patch is booked before it is applied. Without memory the call has no verdict.
func TestPatchedObjectsAreBooked(t *testing.T) {
	patch := &admissionv1.AdmissionResponse{
		Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`),
	}
	grows := &admissionv1.AdmissionResponse{
		Allowed: true, PatchType: "JSONPatch",
		Patch: []byte(`[{"op":"add","path":"/spec","value":{"containers":[` + strings.Repeat(`{},`, 20_000) + `{}]}}]`),
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`
	for name, test := range map[string]struct {
		verdict *admissionv1.AdmissionResponse
		pod     string
		fails   bool
	}{
		"an object that fits":         {patch, emptyObjects(3000), false},
		"an object that does not":     {patch, emptyObjects(70_000), true},
		"a patched one that does not": {grows, pod, true},
	} {
		for policy, allowed := range map[admissionregistrationv1.FailurePolicyType]bool{
			admissionregistrationv1.Fail: false, admissionregistrationv1.Ignore: true,
		} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				d := newDecoding(t, 8<<20, test.verdict, func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy = &policy })
				answer, err := d.review(t, 0, test.pod)
				if err != nil {
					t.Fatal(err)
				}
				response := answer.Response
				if response.GetAllowed() != (allowed || !test.fails) || (len(response.GetPatch()) > 0) == test.fails {
					t.Errorf("answer %v", response)
				}
				said := response.GetStatus().GetMessage() + strings.Join(response.GetWarnings(), "")
				if test.fails && !strings.Contains(said, "overload") {
					t.Errorf("it does not say that there was no memory: %q", said)
				}
			})
		}
	}
}
