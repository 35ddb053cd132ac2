package permit

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestTheServiceGivesShowsAndEndsAPermit(t *testing.T) {
	file := filepath.Join(t.TempDir(), FileName)
	synctest.Test(t, func(t *testing.T) {
		p, who := start(t, file), "ann"
		defer p.stop()
		s, err := NewService(ServiceOptions{
			Permits: p.Permits, ID: "d1", Identity: func(context.Context) identity.Peer { return identity.Named(who) }, Operators: identity.Grant{Names: []string{"ann"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		give := func(life time.Duration, reason string) codes.Code {
			_, err := s.PermitStale(t.Context(), &adminv1.PermitStaleRequest{Life: durationpb.New(life), Reason: reason})
			return status.Code(err)
		}
		show := func() *adminv1.GetStaleResponse {
			t.Helper()
			answer, err := s.GetStale(t.Context(), &adminv1.GetStaleRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		if a := show(); a.GetPermit() != nil || !a.GetStale() || a.GetListed() == nil || a.GetDispatcherId() != "d1" {
			t.Errorf("without a permit: %v", a)
		}
		if code := give(store.MaxPermit, "x"); code != codes.OK {
			t.Errorf("the longest one: %s", code)
		}
		if a := show().GetPermit(); a.GetActor() != "ann" || !a.GetKept() || a.GetUntil().AsTime().Sub(a.GetGiven().AsTime()) != store.MaxPermit {
			t.Errorf("it is %v", a)
		}
		if code := give(store.MaxPermit+1, "x"); code != codes.InvalidArgument || show().GetPermit() == nil {
			t.Errorf("a longer one: %s", code)
		}
		if was, err := s.RevokeStale(t.Context(), &adminv1.RevokeStaleRequest{}); err != nil || was.GetPermit() == nil || show().GetPermit() != nil {
			t.Errorf("revoked: %v, %v", was, err)
		}
		p.wipe()
		if code := give(time.Hour, "x"); code != codes.FailedPrecondition {
			t.Errorf("without a configuration: %s", code)
		}
		for name, want := range map[string]codes.Code{"": codes.Unauthenticated, "bob": codes.PermissionDenied} {
			who = name
			_, show := s.GetStale(t.Context(), &adminv1.GetStaleRequest{})
			_, revoke := s.RevokeStale(t.Context(), &adminv1.RevokeStaleRequest{})
			for _, code := range []codes.Code{give(time.Hour, "x"), status.Code(show), status.Code(revoke)} {
				if code != want {
					t.Errorf("%q: %s, want %s", name, code, want)
				}
			}
		}
	})
}
