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

func TestOneCallWorksAtATimeAndNoIdentityGoesTwiceBeforeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newTurns()
		var order strings.Builder
		var all sync.WaitGroup
		leave, err := queue.wait(t.Context(), "first", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, who := range []string{"a", "a", "a", "b"} {
			all.Go(func() {
				leave, err := queue.wait(t.Context(), who, nil)
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
		if len(queue.lines) != 0 {
			t.Errorf("%d lines are left", len(queue.lines))
		}
	})
}

func TestWhoGoesAwayLeavesItsPlace(t *testing.T) {
	queue := newTurns()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leave, err := queue.wait(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"a", "b"} {
		if _, err := queue.wait(over, who, nil); status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", who, err)
		}
	}
	leave()
	if len(queue.lines) != 0 {
		t.Errorf("%d lines are left", len(queue.lines))
	}
	leave, err = queue.wait(t.Context(), "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
