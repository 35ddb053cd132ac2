package turns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestOneCallWorksAtATimeAndNoIdentityGoesTwiceBeforeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewQueue()
		var order strings.Builder
		var all sync.WaitGroup
		leave, err := queue.Wait(t.Context(), "first", false)
		if err != nil {
			t.Fatal(err)
		}
		for _, who := range []string{"a", "a", "a", "b"} {
			all.Go(func() {
				leave, err := queue.Wait(t.Context(), who, false)
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
	queue := NewQueue()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leave, err := queue.Wait(t.Context(), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"a", "b"} {
		if _, err := queue.Wait(over, who, false); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", who, err)
		}
	}
	leave()
	if len(queue.lines) != 0 {
		t.Errorf("%d lines are left", len(queue.lines))
	}
	leave, err = queue.Wait(t.Context(), "b", false)
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
