package registrar

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestALeaseIsHeldByTheClockOfTheAPIServer has the clocks of the operator and of the dispatcher be wrong.
func TestALeaseIsHeldByTheClockOfTheAPIServer(t *testing.T) {
	const seconds = 30
	for name, tt := range map[string]struct {
		operator, dispatcher time.Duration // how far their clocks are behind the API server's
		written              time.Duration // how long ago the Lease was, by that
		released             bool
		want                 bool
	}{
		"all clocks are right":                             {written: 29 * time.Second, want: true},
		"and the Lease is over":                            {written: 31 * time.Second},
		"the operator's is behind, and the Lease is over":  {operator: time.Hour, written: time.Minute},
		"the operator's is ahead, and the Lease is held":   {operator: -time.Hour, written: time.Second, want: true},
		"the dispatcher's is behind, and it holds":         {dispatcher: time.Hour, written: time.Second, want: true},
		"the dispatcher's is ahead, and the Lease is over": {dispatcher: -time.Hour, written: time.Minute},
		"it was given back a moment ago":                   {written: 14 * time.Second, released: true, want: true},
		"it was given back and nobody has taken it":        {written: 16 * time.Second, released: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now().Add(tt.operator)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(leaseOf(now.Add(-tt.written), tt.dispatcher, seconds, tt.released))
			}))
			defer server.Close()
			r, err := New(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if kept, err := r.Kept(t.Context(), "portcullis"); kept != tt.want || err != nil {
				t.Errorf("kept %v, %v", kept, err)
			}
		})
	}
}

// leaseOf is a Lease that a dispatcher wrote at a time, by a clock that is so far behind.
func leaseOf(written time.Time, behind time.Duration, seconds int32, released bool) *coordinationv1.Lease {
	holder := "dispatcher-1"
	if released {
		holder, seconds = "", 1 // as client-go does
	}
	made, last := metav1.NewTime(written.Add(-time.Hour)), metav1.NewTime(written)
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: "portcullis-entries-portcullis", ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "another", Time: &made}, {Manager: "portcullis", Time: &last}, {Manager: "without a time"},
		}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: written.Add(-behind)},
		},
	}
}
