package service

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOneApplyIsCheckedAtATimeAndNoIdentityGoesTwiceBeforeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		var order strings.Builder
		var all sync.WaitGroup
		leave, err := turns.take(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		for _, who := range []string{"a", "a", "a", "b"} {
			all.Go(func() {
				leave, err := turns.take(t.Context(), who)
				if err != nil {
					t.Error(err)
					return
				}
				order.WriteString(who) // one at a time
				leave()
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		if got := order.String(); got != "abaa" {
			t.Errorf("the turns were %s, want abaa", got)
		}
		if len(turns.lines) != 0 {
			t.Errorf("%d lines are left", len(turns.lines))
		}
	})
}

func TestWhoGoesAwayLeavesItsPlace(t *testing.T) {
	turns := newTurns()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leave, err := turns.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"a", "b"} {
		if _, err := turns.take(over, who); status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", who, err)
		}
	}
	leave()
	if len(turns.lines) != 0 {
		t.Errorf("%d lines are left", len(turns.lines))
	}
	leave, err = turns.take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
