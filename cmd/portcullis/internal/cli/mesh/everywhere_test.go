package mesh

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// member is a dispatcher that knows others.
type member struct {
	configv1.ConfigServiceClient

	id     string
	hooks  []*configv1.Hook
	others *configv1.ListDispatchersResponse
	fails  error // of ListHooks
}

func (m *member) ListHooks(context.Context, *configv1.ListHooksRequest, ...grpc.CallOption) (*configv1.ListHooksResponse, error) {
	for _, h := range m.hooks {
		h.DispatcherId = m.id
	}
	return &configv1.ListHooksResponse{DispatcherId: m.id, Hooks: m.hooks}, m.fails
}

func (m *member) ListDispatchers(context.Context, *configv1.ListDispatchersRequest, ...grpc.CallOption) (*configv1.ListDispatchersResponse, error) {
	if m.others == nil {
		return nil, status.Error(codes.Unavailable, "the store does not answer")
	}
	return m.others, nil
}

// meshOf has one dispatcher.
func meshOf(client configv1.ConfigServiceClient, notes io.Writer) Mesh {
	return Mesh{Clients: Clients{Config: client}, Notes: notes}
}

// streamed is a hook that hosts serve.
func streamed(name string, hosts uint32, state configv1.Hook_State) *configv1.Hook {
	return &configv1.Hook{
		Hook:  &configv1.HookRef{Name: name, Object: &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "p"}},
		Stage: "validate", FailurePolicy: "Fail", Streamed: true, Hosts: hosts, State: state,
	}
}

func TestHooksAreThoseOfAllDispatchersThatAnswer(t *testing.T) {
	const is, pending = configv1.Hook_STATE_IN_ROTATION, configv1.Hook_STATE_PENDING
	there := map[string]*member{
		"two:1":   {id: "two", hooks: []*configv1.Hook{streamed("a", 0, is), streamed("twice", 1, is), streamed("twice", 0, is), streamed("new", 1, pending)}},
		"moved:1": {id: "two"},
		"full:1":  {id: "full", fails: status.Error(codes.ResourceExhausted, "too many calls")},
	}
	first := &member{
		id:    "one",
		hooks: []*configv1.Hook{streamed("a", 2, is), streamed("twice", 1, is), streamed("twice", 0, is), {Hook: &configv1.HookRef{Name: "web"}, Url: "https://web", State: is}},
		others: &configv1.ListDispatchersResponse{Dispatchers: []*configv1.DispatcherStatus{
			{DispatcherId: "full", Addresses: []string{"full:1"}},
			{DispatcherId: "gone", Addresses: []string{"none:1", "none:2"}},
			{DispatcherId: "moved", Addresses: []string{"moved:1"}},
			{DispatcherId: "nowhere"},
			{DispatcherId: "one", Addresses: []string{"one:1"}},
			{DispatcherId: "two", Addresses: []string{"none:1", "two:1"}},
		}},
	}
	var out, notes bytes.Buffer
	dial := func(address string) (Clients, io.Closer, error) {
		if m := there[address]; m != nil {
			return Clients{Config: m}, io.NopCloser(nil), nil
		}
		return Clients{}, nil, errors.New("no route")
	}
	s := &Show{Mesh: Mesh{Clients{Config: first}, dial, &notes}, Out: &out}
	if err := s.Hooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	const wantNotes = "this is of 2 of 6 dispatchers: full does not answer at full:1: too many calls; gone does not answer at none:2: no route; " +
		"moved is not at moved:1: two answers there; nowhere has no address (serve --advertise-hosts)\n"
	if notes.String() != wantNotes {
		t.Errorf("noted %s", &notes)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"HOOK STAGE CLUSTERS FAILURE POLICY SERVED BY STATE OBJECT",
		"a validate all Fail 2 hosts, none on 1 of 2 dispatchers InRotation ValidatingWebhookConfiguration/p",
		"twice validate all Fail 2 hosts InRotation ValidatingWebhookConfiguration/p",
		"twice validate all Fail no host InRotation ValidatingWebhookConfiguration/p",
		"web all https://web InRotation /",
		"new validate all Fail 1 host Pending ValidatingWebhookConfiguration/p",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("shown:\n%s", &out)
	}
}

func TestHooksOfOneDispatcherAreShownWhenTheOthersAreNotKnown(t *testing.T) {
	for want, others := range map[string]*configv1.ListDispatchersResponse{
		"this is of dispatcher one alone: the others are not known (the store does not answer)\n": nil,
		"this is of dispatcher one alone: there is no store, by which it would know others\n":     {NoStore: true},
		"": {Dispatchers: []*configv1.DispatcherStatus{{DispatcherId: "one"}}},
	} {
		var out, notes bytes.Buffer
		s := &Show{Mesh: meshOf(&member{id: "one", hooks: []*configv1.Hook{streamed("a", 1, 1)}, others: others}, &notes), Out: &out}
		if err := s.Hooks(t.Context()); err != nil || notes.String() != want || !strings.Contains(out.String(), "1 host") {
			t.Errorf("%v: noted %q, want %q: %s", err, &notes, want, &out)
		}
	}
}

func TestTheClustersOfAHookAreNamed(t *testing.T) {
	five := []string{"a", "b", "c", "d", "e"}
	for _, test := range []struct {
		hook                  *configv1.Hook
		inTable, wide, inFull string
	}{
		{&configv1.Hook{}, "all", "all", "all"},
		{&configv1.Hook{Clusters: five[:3]}, "a,b,c", "a,b,c", "a, b, c"},
		{&configv1.Hook{Clusters: five}, "a,b,c and 2 more", "a,b,c,d,e", "a, b, c, d, e"},
		{&configv1.Hook{ExceptClusters: five[:1]}, "all but a", "all but a", "all but a"},
		{&configv1.Hook{ExceptClusters: five}, "all but a,b,c and 2 more", "all but a,b,c,d,e", "all but a, b, c, d, e"},
	} {
		cell := func(format string) string {
			return (&Show{Format: format}).hookRows([]*configv1.Hook{test.hook})[0][2]
		}
		if got := []string{cell(""), cell(printer.Wide), ClustersOf(test.hook)}; !slices.Equal(got, []string{test.inTable, test.wide, test.inFull}) {
			t.Errorf("got %q, want %q, %q and %q", got, test.inTable, test.wide, test.inFull)
		}
	}
}
