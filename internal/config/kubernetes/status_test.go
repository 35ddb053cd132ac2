package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// statuses are the statuses in the mesh of a test.
type statuses struct {
	revision string
	message  string
}

func (s *statuses) report(context.Context) (*kubernetes.Statuses, error) {
	return &kubernetes.Statuses{Revision: s.revision, Status: func(config.Key, []byte) kubernetes.Status {
		return kubernetes.Status{InForce: "1/1", Conditions: []metav1.Condition{{
			Type: "InForce", Status: metav1.ConditionTrue, Reason: "Applied", Message: s.message,
		}}}
	}}, nil
}

func newWriter(t *testing.T, c *cluster, s *statuses) *kubernetes.StatusWriter {
	t.Helper()
	w, err := kubernetes.NewStatusWriter(kubernetes.StatusOptions{
		Source: c.source, Client: c.client, Leases: fake.NewClientset().CoordinationV1(), Namespace: "mesh", ID: "d1", Statuses: s.report,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// list lists as a store does, and returns the revision.
func (c *cluster) list(t *testing.T) string {
	t.Helper()
	l, err := c.source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Revision
}

// writes are the names of the objects whose status was written so far.
func (c *cluster) writes() (names []string) {
	for _, action := range c.client.Actions() {
		if update, ok := action.(clienttesting.UpdateAction); ok && action.GetSubresource() == "status" {
			object, _ := update.GetObject().(*unstructured.Unstructured)
			names = append(names, object.GetName())
		}
	}
	return names
}

func TestStatusesAreWrittenOnceForEachChange(t *testing.T) {
	c := newCluster(t, customRoute, customHooks)
	c.client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, _ := action.(clienttesting.UpdateAction)
		object, _ := update.GetObject().(*unstructured.Unstructured)
		object.SetResourceVersion(object.GetResourceVersion() + "0") // as API servers do
		return false, nil, nil
	})
	s := &statuses{revision: c.list(t)}
	w := newWriter(t, c, s)
	write := func(want int, why string) {
		t.Helper()
		if err := w.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.writes(); len(got) != want {
			t.Errorf("%v are written, want %d: %s", got, want, why)
		}
	}
	write(2, "both have none")
	write(2, "the listing is the same")
	if c.list(t) != s.revision {
		t.Error("statuses made a revision")
	}
	write(2, "they have them")
	s.message = "on 2 of 2"
	write(4, "the message is another one")
	c.list(t)
	s.message, s.revision = "on 3 of 3", "older"
	write(4, "the mesh has not looked at what is listed")
}

func TestAStatusThatCannotBeWrittenKeepsNoOther(t *testing.T) {
	c := newCluster(t, customRoute, customHooks)
	s := &statuses{revision: c.list(t)}
	c.client.PrependReactor("update", "hookroutes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no")
	})
	w := newWriter(t, c, s)
	if err := w.Write(t.Context()); err == nil || len(c.writes()) != 2 {
		t.Errorf("error %v, tried %v", err, c.writes())
	}
}

// TestAnotherDispatcherWritesWhenTheLeaderIsGone runs on the clock of a bubble: the lease is given back, or lapses after 15 s.
func TestAnotherDispatcherWritesWhenTheLeaderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, customRoute)
		leases := fake.NewClientset()
		run := func(id string) (stop func()) {
			s := &statuses{revision: c.list(t), message: "by " + id}
			w, err := kubernetes.NewStatusWriter(kubernetes.StatusOptions{
				Source: c.source, Client: c.client, Leases: leases.CoordinationV1(), Namespace: "mesh", ID: id, Statuses: s.report,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			return func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		message := func() string {
			t.Helper()
			<-time.After(30 * time.Second)
			u, err := c.client.Resource(resources("hookroutes")).Get(t.Context(), "r", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			if len(conditions) != 1 {
				t.Fatalf("the status is %v", u.Object["status"])
			}
			condition, _ := conditions[0].(map[string]any)
			text, _ := condition["message"].(string)
			return text
		}
		stopFirst := run("d1")
		if got := message(); got != "by d1" {
			t.Errorf("written %q", got)
		}
		stopSecond := run("d2")
		if got := message(); got != "by d1" {
			t.Errorf("written %q beside the leader", got)
		}
		stopFirst()
		if got := message(); got != "by d2" {
			t.Errorf("written %q after the leader has gone", got)
		}
		stopSecond()
	})
}

func TestAStatusHoldsNoSecret(t *testing.T) {
	c := newCluster(t, customRoute)
	secret := identity.NewCapability().Reveal()
	var written string
	c.client.PrependReactor("update", "hookroutes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, _ := action.(clienttesting.UpdateAction)
		written = fmt.Sprint(update.GetObject())
		return false, nil, nil
	})
	for _, before := range []string{"refused: ", strings.Repeat("a", 1024-12)} { // the second one is cut inside of the secret
		s := &statuses{revision: c.list(t), message: before + secret}
		if err := newWriter(t, c, s).Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(written, before) || strings.Contains(written, secret[:8]) {
			t.Errorf("written: %s", written)
		}
	}
}
