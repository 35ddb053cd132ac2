package dispatcher_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestNobodyWaitsForTheMatchingOfAHookInShadow has a hook in shadow ask for the labels of a namespace, of a cluster that does
// not answer: the hook behind it is asked as if it were not there, and says no.
func TestNobodyWaitsForTheMatchingOfAHookInShadow(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		synctest.Test(t, func(t *testing.T) {
			shadow, decides := hook{name: "a.test.dev", selects: true}.mutating(), hook{name: "b.test.dev"}.mutating()
			c := configuration{Name: "c", Webhooks: []admissionregistrationv1.MutatingWebhook{shadow, decides}}
			o := match.Object{Mutating: c.mutating()}
			if stage == validate {
				o = match.Object{Validating: c.validating()}
			}
			snapshot, _ := match.Compile(match.Input{Revision: "r1", Objects: []match.Object{o}, Routes: []match.RouteBinding{
				{Configuration: "c", Hook: "a.test.dev", Route: match.Route{Stream: true, Shadow: true}},
				{Configuration: "c", Hook: "b.test.dev", Route: match.Route{Stream: true}},
			}})
			begun, asked := time.Now(), []string(nil)
			k := silent{static{snapshot: snapshot}}
			d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: start(
				func(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
					for i, call := range b.Calls {
						asked = append(asked, call.Hook.ID.Name+" after "+time.Since(begun).String())
						done(i, review.Result{Verdict: &admissionv1.AdmissionResponse{}})
					}
					return func(int) {}
				})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r := podReview(stage, `{}`)
			r.Admission.Namespace, r.Explain = "somewhere", false // which would ask the cluster before
			a, err := d.Review(ctx, r)
			if err != nil || a.Response.GetStatus().GetMessage() != `hook "b.test.dev" denied the request without explanation` || ctx.Err() != nil {
				t.Errorf("%s: got %v, %v; the caller: %v", stage, a.Response, err, ctx.Err())
			}
			if !slices.Equal(asked, []string{"b.test.dev after 0s"}) {
				t.Errorf("%s: asked %q", stage, asked)
			}
			d.Close(ctx)
		})
	}
}
