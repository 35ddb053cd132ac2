package serve

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// TestAHookIsInRotationAfterItsEntries: a hook called for only some of its requests is worse than a hook that is not in force yet.
func TestAHookIsInRotationAfterItsEntries(t *testing.T) {
	east := &match.Hook{ID: match.HookID{Configuration: "policy", Name: "east.example.com"}}
	east.Route.Clusters = []string{"east"}
	all := []session.Pending{{Hook: east, Host: "h", Ready: true}}
	now := time.Now()
	held := map[service.Ready]time.Time{}
	lack := func(cluster string, hooks ...*match.Hook) []keeper.Behind {
		return []keeper.Behind{{Cluster: cluster, Lacking: hooks}}
	}
	other := &match.Hook{ID: match.HookID{Configuration: "policy", Name: "other.example.com"}}
	for _, step := range []struct {
		name    string
		after   time.Duration
		entries []keeper.Behind
		ready   int
	}{
		{"entries were not read", 0, []keeper.Behind{{Cluster: "east", Unread: true}}, 0},
		{"entries are behind", 0, lack("east", east), 0},
		{"another dispatcher has just taken the Lease", reconcile.Takeover, lack("east", east), 0},
		{"they are for a while", entriesWait - 1, lack("east", east), 0},
		{"they are for too long", entriesWait, lack("east", east), 1},
		{"it is still not marked", entriesWait + 1, lack("east", east), 1},
		{"the entries of another cluster", entriesWait + 2, lack("west"), 1},
		{"they cannot be written", entriesWait + 3, []keeper.Behind{{Cluster: "east", Lacking: []*match.Hook{east}, Failed: true}}, 1},
		{"they are behind again, and it has waited", entriesWait + 4, lack("east", east), 1},
		{"they are written", entriesWait + 5, nil, 1},
	} {
		if got := readyHooks(all, step.entries, held, now.Add(step.after)); len(got) != step.ready {
			t.Errorf("%s: %d hooks go into rotation, want %d", step.name, len(got), step.ready)
		}
	}
	if got := readyHooks(all, lack("east", other), map[service.Ready]time.Time{}, now); len(got) != 1 {
		t.Errorf("entries that lack another hook alone: %v", got)
	}
	if readyHooks(nil, nil, held, now); len(held) > 0 {
		t.Errorf("remembered of hooks that are not pending any more: %v", held)
	}
	all[0].Ready = false
	if got := readyHooks(all, nil, held, now); len(got) > 0 {
		t.Errorf("without a host that is ready: %v", got)
	}
}

// TestAHookOfTheNextSnapshotIsNotInRotationYet: hosts know it before it is in force, and the entries are compared with the snapshot in force.
func TestAHookOfTheNextSnapshotIsNotInRotationYet(t *testing.T) {
	compile := func(hooks ...string) *match.Snapshot {
		o := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
		for _, name := range hooks {
			o.Webhooks = append(o.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
		}
		s, _ := match.Compile(match.Input{Objects: []match.Object{{Validating: o}}})
		return s
	}
	now, next := compile("a.example.com"), compile("a.example.com", "b.example.com")
	if len(now.Hooks()) != 1 || len(next.Hooks()) != 2 {
		t.Fatalf("hooks %v and %v", now.Hooks(), next.Hooks())
	}
	pending := func() []session.Pending { return []session.Pending{{Hook: next.Hooks()[0]}, {Hook: next.Hooks()[1]}} }
	for _, tt := range []struct {
		name  string
		by    *match.Snapshot
		hooks int
	}{{"before there is one", nil, 0}, {"the snapshot of before", now, 0}, {"their own", next, 2}} {
		if got := pendingIn(tt.by, pending()); len(got) != tt.hooks {
			t.Errorf("%s: %d hooks, want %d", tt.name, len(got), tt.hooks)
		}
	}
}
