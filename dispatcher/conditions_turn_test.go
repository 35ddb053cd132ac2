package dispatcher_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// TestOneReviewOfAClusterEvaluatesConditionsForLong has matchConditions whose authorizer takes less than the free time, or more, while another review of the cluster, or of
// another cluster, is in the middle of a long evaluation.
func TestOneReviewOfAClusterEvaluatesConditionsForLong(t *testing.T) {
	const less, more = dispatcher.FreeEvaluationTime - 1, dispatcher.FreeEvaluationTime + 1
	for name, test := range map[string]struct {
		cluster string
		length  time.Duration // of each condition
		hooks   int
		request string // its name; "lookup" is evaluated without a comprehension, which alone is interrupted
		waits   bool
	}{
		"brief":                     {"c", less, 1, "p", false},
		"long":                      {"c", more, 1, "p", true},
		"a long look-up alone":      {"c", more, 1, "lookup", false},
		"brief, but long together":  {"c", less, 2, "p", true},
		"long, of another cluster":  {"other", more, 1, "p", false},
		"brief, of another cluster": {"other", less, 2, "p", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var length, evaluations atomic.Int64
				free := make(chan struct{})
				decide := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					if evaluations.Add(1) == 2 { // of the first review, in its turn
						<-free
					}
					time.Sleep(time.Duration(length.Load())) //nolint:forbidigo // of the bubble
					return authorizer.DecisionAllow, "", nil
				})
				in := input([]hook{{name: "a.test.dev"}, {name: "b.test.dev"}}[:test.hooks], nil)
				for i := range test.hooks {
					in.Objects[0].Validating.Webhooks[i].MatchConditions = []admissionregistrationv1.MatchCondition{{
						Name: "may", Expression: "authorizer.group('').resource('pods').check('get').allowed() && (request.name == 'lookup' || lists.range(200).all(a, a >= 0))",
					}}
				}
				snapshot, _ := match.Compile(in)
				d, err := dispatcher.New(dispatcher.Options{
					Snapshots: static{snapshot: snapshot}, Clusters: authorizing{static{snapshot: snapshot}, decide}, Streams: instant{},
				})
				if err != nil {
					t.Fatal(err)
				}
				var running sync.WaitGroup
				var judged atomic.Int64
				review := func(cluster, name string) {
					r := podReview(validate, `{"kind":"Pod","apiVersion":"v1"}`)
					r.Admission.Cluster, r.Admission.Name, r.Explain = cluster, name, false
					running.Go(func() {
						if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
							t.Errorf("%v %v", a.Response, err)
						}
						judged.Add(1)
					})
					time.Sleep(time.Second) //nolint:forbidigo // of the bubble
				}
				length.Store(int64(more))
				review("c", "p")
				length.Store(int64(test.length))
				review(test.cluster, test.request)

				if waits := judged.Load() == 0; waits != test.waits {
					t.Errorf("the second review waits: %t", waits)
				}
				close(free)
				running.Wait()
			})
		})
	}
}
