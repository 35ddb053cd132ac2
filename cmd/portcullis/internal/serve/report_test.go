package serve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cluster/follow"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// declared are clusters of which the mesh keeps the entries of the first.
func declared(names ...string) map[config.Key]config.Object {
	objects := map[config.Key]config.Object{}
	for i, name := range names {
		c := &kinds.Cluster{}
		if i == 0 {
			c.Spec.Registration = &kinds.Registration{}
		}
		key := config.Key{Kind: kinds.ClusterKind, Name: name}
		objects[key] = config.Object{Key: key, Cluster: c}
	}
	return objects
}

func TestClustersWithHooksWhoseEntriesWereNotSeen(t *testing.T) {
	objects := declared("kept", "a", "b", "c")
	general, ofA, copied, elsewhere := &match.Hook{}, &match.Hook{Route: match.Route{Clusters: []string{"a", "kept", "unknown"}}},
		&match.Hook{ID: match.HookID{Scope: "b"}}, &match.Hook{ID: match.HookID{Scope: "b"}, Route: match.Route{Clusters: []string{"c"}}}
	for _, test := range []struct {
		hooks  []*match.Hook
		drifts []dispatcher.EntryDrift
		want   []string
	}{
		{nil, nil, nil},
		{[]*match.Hook{general}, nil, []string{"a", "b", "c"}},
		{[]*match.Hook{general}, []dispatcher.EntryDrift{{Cluster: "b"}}, []string{"a", "c"}},
		{[]*match.Hook{ofA}, nil, []string{"a"}},
		{[]*match.Hook{copied, ofA}, nil, []string{"a", "b"}},
		{[]*match.Hook{elsewhere}, nil, nil},
	} {
		if got := reportUnseen(objects, test.hooks, test.drifts); !slices.Equal(got, test.want) {
			t.Errorf("unseen %v, want %v", got, test.want)
		}
	}
}

func TestAReportNamesSoManyClustersWhoseEntriesWereNotSeen(t *testing.T) {
	names := []string{"kept"}
	for i := range maxDrifts + 1 {
		names = append(names, fmt.Sprintf("c%04d", i))
	}
	all := []*match.Hook{{}}
	if got := reportUnseen(declared(names[:maxDrifts+1]...), all, nil); !slices.Equal(got, names[1:maxDrifts+1]) {
		t.Errorf("%d are named: %v", len(got), got)
	}
	if got := reportUnseen(declared(names...), all, nil); !slices.Equal(got, names[1:maxDrifts+1]) {
		t.Errorf("%d are named of one more: %v", len(got), got)
	}
}

func TestAReportNamesConnectedHostsWithinItsBytes(t *testing.T) {
	few := session.Offering{Peer: identity.Named("few", "spiffe://mesh"), Hooks: hooksWithout(1)}
	many := session.Offering{Peer: identity.Named("many"), Hooks: hooksWithout(300)}
	size := proto.Size(reportConnected([]session.Offering{few, many}))
	if size == 0 || size > maxConnectedBytes {
		t.Fatalf("they have %d bytes", size)
	}
	one := reportConnected([]session.Offering{few})
	if h := one.GetHosts()[0]; one.GetMore() || h.GetIdentity() != "few" || !slices.Equal(h.GetAuthorities(), []string{"spiffe://mesh"}) ||
		h.GetHooks()[0].GetHook() != "h0" || h.GetHooks()[0].GetObject() != "ValidatingWebhookConfiguration/c" {
		t.Errorf("told %v", one)
	}
	// The identity that brings the report to the bound is named, and with one more byte it is not.
	room := maxConnectedBytes - proto.Size(one.GetHosts()[0]) - proto.Size(reportConnected([]session.Offering{many}).GetHosts()[0])
	filler := session.Offering{Peer: identity.Named(strings.Repeat("x", 1)), Hooks: hooksWithout(1)}
	grow := func(n int) session.Offering {
		filler.Peer = identity.Named(strings.Repeat("x", n))
		return filler
	}
	n := room
	for proto.Size(reportConnected([]session.Offering{grow(n)}).GetHosts()[0]) > room {
		n--
	}
	if at := reportConnected([]session.Offering{few, many, grow(n)}); at.GetMore() || len(at.GetHosts()) != 3 {
		t.Errorf("at the bound %d identities are named, and more: %t", len(at.GetHosts()), at.GetMore())
	}
	if above := reportConnected([]session.Offering{few, many, grow(n + 1)}); !above.GetMore() || len(above.GetHosts()) != 2 {
		t.Errorf("above the bound %d identities are named, and more: %t", len(above.GetHosts()), above.GetMore())
	}
	if none := reportConnected(nil); none.GetMore() || none.GetHosts() != nil {
		t.Errorf("without hosts it tells %v", none)
	}
}

// TestAMessageOfAReportHoldsNoSecret, also where its bound cuts a secret.
func TestAMessageOfAReportHoldsNoSecret(t *testing.T) {
	c := newCanaries()
	for _, bound := range []int{maxPendingMessage, maxBehindMessage, maxFollowMessage} {
		for _, text := range []string{c.error(), strings.Repeat("a", bound-15) + c.capability, "\x1b[31m" + c.error()} {
			follows := reportFollows([]follow.ClusterStatus{{Cluster: "c", Error: text, Objects: []follow.ObjectStatus{{Object: "V/o", Message: text}}}})
			behind, _ := reportBehind([]keeper.Behind{{Cluster: "c", Why: text}})
			wider := reportWider([]keeper.State{{Cluster: "c", Wider: []string{text}}})
			pending := pendingHooks([]session.Pending{{Hook: &match.Hook{}, Host: "h", Message: text}})
			for _, said := range []string{
				follows[0].GetError(), follows[0].GetOthers()[0].GetMessage(), behind[0].GetMessage(), wider[0].GetMessage(), pending[0].GetMessage(),
			} {
				c.notIn(t, said)
				if strings.Contains(said, "pcap_"+c.capability[5:8]) || strings.Contains(said, "\x1b") || len(said) > maxFollowMessage {
					t.Errorf("%d bytes are said: %.600q", len(said), said)
				}
			}
		}
	}
}
