package hostsdk_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestNoHandlerWaitsForAnother: the handlers of one review, and of several reviews in one frame, all run at the same time,
// also when each of them waits for all others, and when some end their goroutines.
func TestNoHandlerWaitsForAnother(t *testing.T) {
	const reviews, hooks = 8, 16
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		handler := func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			all.Done()
			all.Wait()
			if r.Hook == "ends" {
				runtime.Goexit()
			}
			return hostsdk.Allow(), nil
		}
		host, err := hostsdk.New(hostsdk.Options{Name: "workers", MaxOutstanding: reviews * hooks, Logger: quiet()},
			hostsdk.Validate("waits", handler), hostsdk.Validate("ends", handler))
		if err != nil {
			t.Fatal(err)
		}
		d := hosttest.Start(t, host)
		calls := make([]*hostv1.HookCall, hooks)
		for i := range calls {
			calls[i] = &hostv1.HookCall{
				Name: []string{"waits", "ends"}[i%2], Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 1000,
			}
		}
		for range 3 { // First with new goroutines, then with those that wait for work.
			all.Add(reviews * hooks)
			var under []*hosttest.Call
			for range reviews {
				call, err := d.Post(hosttest.Create(pod), calls...)
				if err != nil {
					t.Fatal(err)
				}
				under = append(under, call)
			}
			for _, call := range under {
				verdicts, err := call.Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range verdicts {
					if ended := v.GetError().GetPanicked(); ended != (i%2 == 1) || !ended && !v.GetResponse().GetAllowed() {
						t.Errorf("verdict %d: %v", i, v)
					}
				}
			}
		}
	})
}
