package session

import (
	"testing"
	"testing/synctest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
)

func TestTheFloodOfAClusterIsNoOverloadForTheOthers(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		ended := make(chan string, pool.MaxWaiting)
		call := func(cluster string) func(int) {
			batch := m.call()
			batch.Request = &admissionv1.AdmissionRequest{Cluster: cluster}
			return m.router.Start(t.Context(), batch, func(_ int, r review.Result) {
				how := "allowed"
				if r.Failure != nil {
					how = r.Failure.Kind.String()
				}
				ended <- cluster + " " + how
			})
		}
		want := func(how string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-ended:
				if got != how {
					t.Errorf("%s, want %s", got, how)
				}
			default:
				t.Errorf("nothing ended, want %s", how)
			}
		}
		var flood []func(int)
		for range 1 + pool.MaxWaiting/2 { // one is on the host
			flood = append(flood, call("loud"))
		}
		call("loud")
		want("loud overload")
		call("quiet")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("loud allowed")
		h.allow(h.review(), 0)
		want("quiet allowed")
		for _, cancel := range flood {
			cancel(0)
		}
		h.allow(h.review(), 0)
	})
}
