package turns

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnIdentityWorksItsShareOfTheTime: calls that follow each other at once, as a client in a loop sends them.
func TestAnIdentityWorksItsShareOfTheTime(t *testing.T) {
	for _, took := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 10 * time.Second} {
		p, begun := newPace(), time.Unix(1, 0)
		now, worked := begun, time.Duration(0)
		for now.Sub(begun) < time.Hour {
			now = now.Add(p.delay("a", now) + took)
			worked += took
			p.worked("a", now, took)
			if d := p.delay("b", now); d != 0 {
				t.Fatalf("another identity waits for %v", d)
			}
		}
		if share := time.Hour / workParts; worked < share || worked > share+workBurst+took {
			t.Errorf("calls of %v worked for %v of an hour, want %v", took, worked, share)
		}
	}
}

func TestACallAfterAPauseBeginsAtOnce(t *testing.T) {
	p, now := newPace(), time.Unix(1, 0)
	p.worked("a", now, 20*time.Second)
	if d := p.delay("a", now); d != (workParts-1)*20*time.Second-workBurst {
		t.Errorf("it waits for %v", d)
	}
	if d := p.delay("a", now.Add(workParts*20*time.Second)); d != 0 {
		t.Errorf("after a pause it waits for %v", d)
	}
}

// TestAPaceIsBounded: holders past the bound share their rest, until enough others have rested.
func TestAPaceIsBounded(t *testing.T) {
	p, now := newPace(), time.Unix(1, 0)
	for n := range 2 * maxResting {
		p.worked(fmt.Sprint(n), now, time.Hour)
	}
	if len(p.rested) != maxResting+1 || p.delay("new", now) <= p.delay("0", now) || p.delay("0", now) == 0 {
		t.Errorf("%d holders are known; a new one waits for %v, the first one for %v", len(p.rested), p.delay("new", now), p.delay("0", now))
	}
	now = now.Add(workParts * time.Hour)
	if d := p.delay("new", now); d != 0 {
		t.Errorf("a new holder waits for %v after the others have rested", d)
	}
}

func TestAPaceForgetsIdentitiesThatHaveRested(t *testing.T) {
	p, now := newPace(), time.Unix(1, 0)
	p.worked("tired", now, time.Hour)
	for n := range 2 * maxResting {
		now = now.Add(time.Second)
		p.worked(fmt.Sprint(n), now, time.Millisecond)
	}
	if len(p.rested) > maxResting || p.delay("tired", now) == 0 {
		t.Errorf("%d identities are known, and one that owes rest waits for %v", len(p.rested), p.delay("tired", now))
	}
}

// TestAnIdentityThatRestsHoldsNobodyUp: it waits outside of the common queue.
func TestAnIdentityThatRestsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewQueue()
		call := func(ctx context.Context, who string, length time.Duration) (waited time.Duration, err error) {
			begun := time.Now()
			done, err := queue.Wait(ctx, who, true)
			waited = time.Since(begun)
			if err == nil {
				<-time.After(length)
				done()
			}
			return waited, err
		}
		if waited, err := call(t.Context(), "a", time.Minute); waited != 0 || err != nil {
			t.Fatal(waited, err)
		}
		shared := queue.Apart()
		again := make(chan time.Duration)
		go func() { waited, _ := call(t.Context(), "a", 0); again <- waited }()
		synctest.Wait()
		if waited, err := call(t.Context(), "b", time.Second); waited != 0 || err != nil {
			t.Errorf("another identity: %v, %v", waited, err)
		}
		begun := time.Now()
		done, err := shared.Wait(t.Context(), "a", false)
		if err != nil || time.Since(begun) != 0 {
			t.Errorf("shared work waits for %v: %v", time.Since(begun), err)
		}
		done()
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, err := call(gone, "a", 0); waited != time.Second || err == nil {
			t.Errorf("a call that is over: %v, %v", waited, err)
		}
		if waited, want := <-again, (workParts-1)*time.Minute-workBurst; waited != want {
			t.Errorf("it rested for %v, want %v", waited, want)
		}
		if len(queue.lines) != 0 {
			t.Errorf("%d lines are left", len(queue.lines))
		}
	})
}

// TestSpentWorkTakesTheSameShareOfTheTime: work without a turn, such as the bytes of a message, one after the other or at once.
func TestSpentWorkTakesTheSameShareOfTheTime(t *testing.T) {
	for _, together := range []int{1, 7, 300} {
		synctest.Test(t, func(t *testing.T) {
			const work = 10 * time.Millisecond
			q, begun, spent := NewQueue(), time.Now(), time.Duration(0)
			for time.Since(begun) < time.Hour {
				rest := time.Duration(0)
				for range together {
					rest = max(rest, q.Spend("a", work))
					spent += work
				}
				if d := q.Spend("b", 0); d != 0 {
					t.Fatalf("another holder rests for %v", d)
				}
				<-time.After(rest)
			}
			took := time.Since(begun)
			if share := took / workParts; spent < share || spent > share+workBurst+time.Duration(together)*work {
				t.Errorf("%d at a time spent %v of %v, want %v", together, spent, took, share)
			}
		})
	}
}
