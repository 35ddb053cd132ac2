package dispatcher_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// modes are why handlers were asked.
type modes struct {
	mu   sync.Mutex
	seen map[string][]hostsdk.Mode // by hook, each mode once
}

// handler takes note of why it is asked, and allows everything.
func (m *modes) handler(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.seen[r.Hook], r.Mode) {
		m.seen[r.Hook] = append(m.seen[r.Hook], r.Mode)
	}
	return hostsdk.Allow(), nil
}

// TestHandlersSeeWhyTheyAreAsked checks that the mode of a call arrives in the handler, over a real stream.
func TestHandlersSeeWhyTheyAreAsked(t *testing.T) {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	c.Name = "m"
	in := match.Input{Objects: []match.Object{{Mutating: c}}}
	for name, r := range map[string]match.Route{
		"1.test.dev": {}, "2.test.dev": {Speculate: true}, "3.test.dev": {Speculate: true}, "4.test.dev": {Shadow: true},
	} {
		c.Webhooks = append(c.Webhooks, hook{name: name}.mutating())
		r.Stream, r.Hosts = true, []string{"host"}
		in.Routes = append(in.Routes, match.RouteBinding{Configuration: "m", Hook: name, Route: r})
	}
	slices.SortFunc(c.Webhooks, func(a, b admissionregistrationv1.MutatingWebhook) int { return int(a.Name[0]) - int(b.Name[0]) })
	snapshot, _ := match.Compile(in)
	m := newMeshOf(t, snapshot, static{snapshot: snapshot}, func(o *dispatcher.Options) {
		o.Capacity, _ = o.Streams.(review.Capacity)
	})
	seen := modes{seen: map[string][]hostsdk.Mode{}}
	m.host("one",
		hostsdk.Mutate("1.test.dev", seen.handler),
		hostsdk.Mutate("2.test.dev", seen.handler, hostsdk.Speculate()),
		hostsdk.Mutate("3.test.dev", seen.handler), // it does not agree
		hostsdk.Mutate("4.test.dev", seen.handler),
	)
	for range trusted {
		if a := m.review(mutate, `{"kind":"Pod"}`); !a.Response.GetAllowed() {
			t.Fatalf("got %v", a.Response)
		}
	}
	m.dispatcher.Close(t.Context())
	want := map[string][]hostsdk.Mode{
		"1.test.dev": {hostsdk.ModeDecide},
		"2.test.dev": {hostsdk.ModeDecide, hostsdk.ModeSpeculative},
		"3.test.dev": {hostsdk.ModeDecide},
		"4.test.dev": {hostsdk.ModeShadow},
	}
	if diff := cmp.Diff(want, seen.seen); diff != "" {
		t.Errorf("handlers were asked in other modes (-want +got):\n%s", diff)
	}
}
