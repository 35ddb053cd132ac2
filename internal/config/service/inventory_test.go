package service_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

func TestHostsAreListedInPages(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	for i := range 2*service.MaxHosts + 1 {
		f.connected = append(f.connected, &configv1.Host{SessionId: fmt.Sprintf("%04d", i)})
	}
	for limit, pages := range map[uint32]int{0: 3, service.MaxHosts + 1: 3, service.MaxHosts: 3, 1001: 3, 250: 5} {
		seen, asked, from := 0, 0, ""
		for more := true; more; asked++ {
			a, err := f.ListHosts(f.as("viewer"), &configv1.ListHostsRequest{Limit: limit, Continue: from})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range a.GetHosts() {
				if h.GetSessionId() != fmt.Sprintf("%04d", seen) || h.GetDispatcherId() != "here" {
					t.Fatalf("host %v is number %d", h, seen)
				}
				seen++
			}
			from = a.GetContinue()
			more = from != ""
		}
		if seen != len(f.connected) || asked != pages {
			t.Errorf("limit %d: %d hosts in %d pages, want %d", limit, seen, asked, pages)
		}
	}
}

// TestOperatorsSeeHostsWhileTheStoreDoesNotAnswer: that is when they look.
func TestOperatorsSeeHostsWhileTheStoreDoesNotAnswer(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	for who, want := range map[string]codes.Code{"viewer": codes.Canceled, "root": codes.OK} {
		ctx, cancel := context.WithCancel(f.as(who))
		cancel() // so that the store cannot be read
		_, err := f.ListHosts(ctx, &configv1.ListHostsRequest{})
		_, also := f.ListHooks(ctx, &configv1.ListHooksRequest{})
		if status.Code(err) != want || status.Code(also) != want {
			t.Errorf("%s: %v and %v, want %s", who, err, also, want)
		}
	}
}
