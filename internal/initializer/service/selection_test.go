package service

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

const (
	added    = initializerv1.EventType_EVENT_TYPE_ADDED
	modified = initializerv1.EventType_EVENT_TYPE_MODIFIED
	deleted  = initializerv1.EventType_EVENT_TYPE_DELETED
	nothing  = initializerv1.EventType_EVENT_TYPE_UNSPECIFIED
)

func pod(pending ...string) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{
			Cluster: "c", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web",
		},
		Uid: "u", ResourceVersion: "7", Pending: pending, Object: &admissionv1.Object{Raw: []byte("{}")},
		Creator: &admissionv1.UserInfo{Username: "jane"},
	}
}

func viewing(a Access) *view {
	return &view{Access: a, now: func() time.Time { return time.Unix(1000, 0) }}
}

// TestMessage: a reader receives the changes of objects that it sees, and learns when it sees an object no more.
func TestMessage(t *testing.T) {
	granted, role := viewing(Access{Initializers: []Initializer{{Pending: "a", Clusters: []string{"c"}}}}), viewing(Access{Reader: true})
	elsewhere := viewing(Access{Initializers: []Initializer{{Pending: "a", Clusters: []string{"d"}}}})
	first := &initializerv1.ListRequest{FirstPending: "a"}
	for name, tt := range map[string]struct {
		view   *view
		r      *initializerv1.ListRequest
		event  staged.Event
		want   initializerv1.EventType
		object bool // is in it
	}{
		"what waits for the reader comes":                    {granted, nil, staged.Event{Type: added, Object: pod("a")}, added, true},
		"what waits for others does not":                     {granted, nil, staged.Event{Type: added, Object: pod("b")}, nothing, false},
		"nor what is held for another cluster":               {elsewhere, nil, staged.Event{Type: added, Object: pod("a")}, nothing, false},
		"a role sees that it is there":                       {role, nil, staged.Event{Type: added, Object: pod("b")}, added, false},
		"what changes is sent":                               {granted, nil, staged.Event{Type: modified, Previous: pod("a"), Object: pod("a", "b")}, modified, true},
		"what the reader has done is gone":                   {granted, nil, staged.Event{Type: modified, Previous: pod("a", "b"), Object: pod("b")}, deleted, true},
		"a name that is added brings it":                     {granted, nil, staged.Event{Type: modified, Previous: pod("b"), Object: pod("b", "a")}, added, true},
		"what others do is not told":                         {granted, nil, staged.Event{Type: modified, Previous: pod("b", "c"), Object: pod("c")}, nothing, false},
		"it comes when its turn comes":                       {granted, first, staged.Event{Type: modified, Previous: pod("b", "a"), Object: pod("a")}, added, true},
		"and not before":                                     {granted, first, staged.Event{Type: added, Object: pod("b", "a")}, nothing, false},
		"a deletion is told who saw it":                      {granted, nil, staged.Event{Type: deleted, Previous: pod("a"), Object: pod("a")}, deleted, true},
		"and nobody else":                                    {granted, nil, staged.Event{Type: deleted, Previous: pod("b"), Object: pod("b")}, nothing, false},
		"what changed before the reader came back is sent":   {granted, nil, staged.Event{Type: modified, Object: pod("a")}, modified, true},
		"what it may have seen before is gone, without more": {granted, nil, staged.Event{Type: modified, Object: pod("b")}, deleted, false},
		"what was deleted then is gone, without more":        {granted, nil, staged.Event{Type: deleted, Object: pod("a")}, deleted, false},
		"and nothing of another cluster":                     {elsewhere, nil, staged.Event{Type: deleted, Object: pod("a")}, nothing, false},
		"another namespace is not selected":                  {granted, &initializerv1.ListRequest{Namespace: "x"}, staged.Event{Type: added, Object: pod("a")}, nothing, false},
		"another version is not selected": {
			granted, &initializerv1.ListRequest{Resource: &admissionv1.GroupVersionResource{Version: "v2", Resource: "pods"}}, staged.Event{Type: added, Object: pod("a")}, nothing, false,
		},
		"no version is any": {
			granted, &initializerv1.ListRequest{Resource: &admissionv1.GroupVersionResource{Resource: "pods"}}, staged.Event{Type: added, Object: pod("a")}, added, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := selection{tt.view, tt.r}.message(tt.event)
			if m.GetType() != tt.want || (m.GetObject().GetObject() != nil) != tt.object || tt.want != nothing && m.GetObject().GetResourceVersion() != "7" {
				t.Errorf("%v, want %v, with its object %t", m, tt.want, tt.object)
			}
			if m != nil && tt.event.Previous == nil && m.GetType() == deleted && m.GetObject().GetCreator() != nil {
				t.Errorf("it says who creates it: %v", m)
			}
		})
	}
}

func TestShow(t *testing.T) {
	o := pod("a", "b")
	o.Expires = timestamppb.New(time.Unix(1002, 5e8))
	before := proto.CloneOf(o)
	shown := viewing(Access{Initializers: []Initializer{{Pending: "b"}}}).show(o)
	if shown.GetRemainingMs() != 2500 || shown.GetObject() == nil {
		t.Errorf("%v", shown)
	}
	shown.RemainingMs = 0
	if !proto.Equal(shown, before) || !proto.Equal(o, before) {
		t.Errorf("shown %v, of %v", shown, o)
	}
	o.Expires = timestamppb.New(time.Unix(900, 0))
	if outline := viewing(Access{Reader: true}).show(o); outline.GetObject() != nil || outline.GetCreator() == nil || outline.GetRemainingMs() != 0 {
		t.Errorf("%v", outline)
	}
}

// onlyOne makes one caller an operator.
type onlyOne struct{}

func (onlyOne) Access(caller identity.Peer) Access { return Access{Operator: caller.Name() == "one"} }
func (onlyOne) Configured(string, string) []string { return nil }
func (onlyOne) Next() <-chan struct{}              { return nil }

// TestWithoutAStore: who is let in learns that nothing is staged, and others nothing.
func TestWithoutAStore(t *testing.T) {
	who := ""
	s, err := New(Options{Grants: onlyOne{}, Identity: func(context.Context) identity.Peer { return identity.Named(who) }})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]codes.Code{"": codes.Unauthenticated, "other": codes.PermissionDenied, "one": codes.FailedPrecondition} {
		who = name
		if _, err := s.List(t.Context(), nil); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
		if err := s.MayCall(t.Context()); (err == nil) != (name == "one") {
			t.Errorf("%q may call: %v", name, err)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("it is made of nothing")
	}
}
