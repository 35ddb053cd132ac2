package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

func TestNoTimeIsKeptForHooksInShadow(t *testing.T) {
	now := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), now.Add(10*time.Second))
	defer cancel()
	hooks := []*match.Hook{{Timeout: time.Second}, {Timeout: 4 * time.Second, Route: match.Route{Shadow: true}}}
	if by := mutateBy(ctx, now, hooks); by.Sub(now) != 9*time.Second {
		t.Errorf("mutating hooks have %s, want 9s", by.Sub(now))
	}
}
