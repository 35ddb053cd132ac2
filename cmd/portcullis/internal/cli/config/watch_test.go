package config

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// watches is a service whose Watch sends the present objects, and then ends, one call after the other.
type watches struct {
	configv1.ConfigServiceClient

	calls [][]any // *configv1.WatchResponse, or the error at the end
}

func (w *watches) Watch(context.Context, *configv1.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configv1.WatchResponse], error) {
	next := w.calls[0]
	w.calls = w.calls[1:]
	return &watchStream{next: next}, nil
}

type watchStream struct {
	grpc.ServerStreamingClient[configv1.WatchResponse]

	next []any
}

func (s *watchStream) Recv() (*configv1.WatchResponse, error) {
	next := s.next[0]
	s.next = s.next[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(*configv1.WatchResponse), nil
}

func TestAWatchThatEndsIsBegunAgain(t *testing.T) {
	change := func(kind configv1.WatchResponse_Type, name, source string) *configv1.WatchResponse {
		return &configv1.WatchResponse{Type: kind, Object: &configv1.ConfigObject{Key: &configv1.ConfigKey{Kind: "Role", Name: name}, Source: source}}
	}
	put, deleted := configv1.WatchResponse_TYPE_PUT, configv1.WatchResponse_TYPE_DELETED
	synced := &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_SYNCED}
	client := &watches{calls: [][]any{
		{change(put, "a", "1"), change(put, "b", "1"), change(put, "c", "1"), synced, change(deleted, "c", "1"), status.Error(codes.Aborted, "too slow")},
		{change(put, "a", "1"), status.Error(codes.Unavailable, "stopping")}, // the missing changes are unknown
		{change(put, "a", "1"), change(put, "d", "a longer one"), synced, change(put, "a", "2"), status.Error(codes.PermissionDenied, "no role")},
	}}
	var out, notes bytes.Buffer
	err := watchObjects(t.Context(), &mesh.Show{Mesh: mesh.Mesh{Clients: mesh.Clients{Config: client}, Notes: &notes}, Out: &out}, selection{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("ended with %v", err)
	}
	want := `OBJECT  ACCEPTED  IN ROTATION  EFFECTIVE  SERVED  MODE  SOURCE
Role/a  -         -            -          -       -     1
Role/b  -         -            -          -       -     1
Role/c  -         -            -          -       -     1
Role/c  gone
Role/d  -         -            -          -       -     a longer one
Role/b  gone
Role/a  -         -            -          -       -     2
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "the watch has ended (too slow): beginning again\nthe watch has ended (stopping): beginning again\n"; notes.String() != want {
		t.Errorf("said %q", &notes)
	}

	client = &watches{calls: [][]any{{status.Error(codes.Unavailable, "nobody there")}}}
	show := &mesh.Show{Mesh: mesh.Mesh{Clients: mesh.Clients{Config: client}, Notes: &notes}, Out: &out}
	if err := watchObjects(t.Context(), show, selection{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a mesh that does not answer at all: %v", err)
	}
}
