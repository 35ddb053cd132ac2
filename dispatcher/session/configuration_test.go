package session

import (
	"context"
	"slices"
	"sync"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// documents is a source of configuration: the last text that was written.
type documents struct {
	t *testing.T

	mu   sync.Mutex
	text string
}

func (d *documents) Name() string { return "documents" }

func (d *documents) List(context.Context) (config.Listing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	objects, problems := configtest.Decode("documents.yaml", []byte(d.text))
	if err := problems.Err(); err != nil {
		d.t.Error(err)
	}
	return config.Listing{Revision: d.text, Objects: objects, Problems: problems}, nil
}

func (d *documents) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// write replaces all documents by hooks of these names, which identity "host" may serve.
func (d *documents) write(hooks ...string) {
	text := `
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: c}
spec: {configuration: c, stream: {}, hosts: [host]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: c}
webhooks:
`
	for _, hook := range hooks {
		text += "- {name: " + hook + ".example.com, clientConfig: {}, sideEffects: None, admissionReviewVersions: [v1]," +
			" rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = text
}

// TestNoReviewMeetsAHookThatTheSessionsDoNotKnow has reviews that begin at the worst moments while a store puts hooks into
// force and takes others away: right before and right after the sessions are told.
func TestNoReviewMeetsAHookThatTheSessionsDoNotKnow(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a.example.com", "b.example.com", "c.example.com")
		source := &documents{t: t}
		source.write("a")
		var configuration *store.Store
		var begun []*results
		review := func() {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if s, err := configuration.Fresh(over); err == nil {
				begun = append(begun, m.reviewAll(s))
			}
		}
		configuration, err := store.New(store.Options{Sources: []config.Source{source}, OnSnapshot: func(s *match.Snapshot) {
			review()
			m.router.Update(s)
			review()
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- configuration.Run(ctx) }()
		elapse(store.ListInterval / 2)
		for _, hooks := range [][]string{{"a", "b"}, {"b", "c"}, {"c"}, {"a"}} {
			source.write(hooks...)
			elapse(store.ListInterval)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for f := h.hear(); f != nil; f = h.hear() {
			for i := range f.GetReview().GetHooks() {
				h.allow(f.GetReview(), uint32(i))
			}
		}
		if len(begun) < 8 {
			t.Errorf("only %d reviews", len(begun))
		}
		for i, got := range begun {
			for name := range got.cancel {
				if x, _ := got.of(name); x.Failure != nil {
					t.Errorf("review %d: hook %s: %v", i, name, x.Failure)
				}
				got.want(name, "allowed")
			}
		}
	})
}

// reviewAll starts a review of all hooks of a snapshot, and does not wait.
func (m *mesh) reviewAll(s *match.Snapshot) *results {
	m.snapshot = s
	var names []string
	for _, h := range s.Hooks() {
		names = append(names, h.ID.Name)
	}
	return m.start(names...)
}

func TestARemovedHookIsServedForAsLongAsAReviewMayTake(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a", "b")
		old := m.snapshot
		m.configure("b")
		m.snapshot = old // the next reviews began before
		var state hostv1.State
		served := func() {
			t.Helper()
			got := m.review("a")
			for f := h.hear(); f != nil; f = h.hear() {
				if s := f.GetHookState(); s.GetName() == "a" {
					state = s.GetState()
				}
				if f.GetReview() != nil {
					h.allow(f.GetReview(), 0)
				}
			}
			got.want("a", "allowed")
		}
		served()
		m.configure("b", "c")
		m.snapshot = old
		elapse(stream.MaxReview - stream.TickInterval)
		h = m.connect("two", &hostv1.Hello{}, "a", "b") // the first one was silent for too long
		served()
		if state != hostv1.State_STATE_REMOVING {
			t.Errorf("the host is told %v while the hook is served", state)
		}
		elapse(2 * stream.TickInterval)
		m.review("a").want("a", "unavailable")
		for f := h.hear(); f != nil; f = h.hear() {
			if s := f.GetHookState(); s.GetName() == "a" {
				state = s.GetState()
			}
		}
		if state != hostv1.State_STATE_REMOVED {
			t.Errorf("the host is told %v when the hook is gone", state)
		}
	})
}

func TestAHookThatComesBackStays(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.configure()
		elapse(stream.MaxReview / 2)
		m.configure("a")
		elapse(stream.MaxReview)
		h := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		h.allow(h.review(), 0)
		got.want("a", "allowed")
	})
}

// TestARemovedHookIsNobodysConcernButThatOfReviewsUnderWay has a hook that is gone, and a hook of the same name that others may
// serve.
func TestARemovedHookIsNobodysConcernButThatOfReviewsUnderWay(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.configure("b")
		if got := m.router.Ready(); !slices.Equal(got, []string{"c/b"}) {
			t.Errorf("without a host are %v", got)
		}
		m.configureAs("other", "stranger", "a")
		h := m.dial("host", 8)
		h.say(hello("h", "a"))
		if state := h.hear().GetWelcome().GetHooks()[0].GetState(); state != hostv1.State_STATE_NOT_AUTHORIZED {
			t.Errorf("a host that may not serve the hook any more is told %v", state)
		}
	})
}

func TestHostsAreToldOfOtherDispatchers(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		peers := func(ids ...string) (out []*hostv1.Peer) {
			for _, id := range ids {
				out = append(out, &hostv1.Peer{DispatcherId: id, Addresses: []string{id + ":8444"}})
			}
			return out
		}
		m.router.UpdatePeers(peers("d3", "d2"))
		h := m.dial("host", 64)
		h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{
			Host: "h", Instance: "i", ProtocolMin: 1, ProtocolMax: 1,
			Hooks: []*hostv1.HookOffer{{Name: "a", Stage: admissionv1.Stage_STAGE_VALIDATE}},
		}}})
		told := func(want ...string) {
			t.Helper()
			var got []string
			for _, p := range h.hear().GetWelcome().GetPeers() {
				got = append(got, p.GetDispatcherId())
			}
			if !slices.Equal(got, want) {
				t.Errorf("told of %v, want %v", got, want)
			}
		}
		told("d2", "d3")
		m.router.UpdatePeers(peers("d2", "d3")) // the same: nothing is sent
		m.router.UpdatePeers(peers("d2", "d4"))
		told("d2", "d4")
		m.router.UpdatePeers(nil)
		told()
	})
}
