package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestInboxWakesWhenSomethingCanBeDecided(t *testing.T) {
	allowed := review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}}
	denied := review.Result{Verdict: &admissionv1.AdmissionResponse{}}
	failed := review.Fail(review.FailureLost, "lost")
	for _, c := range []struct {
		name    string
		each    bool
		calls   int
		results []review.Result
		want    []bool // whether each result wakes
	}{
		{"the last of calls that allow wakes", false, 3, []review.Result{allowed, allowed, allowed}, []bool{false, false, true}},
		{"a denial wakes at once, and the last result too", false, 3, []review.Result{allowed, denied, allowed}, []bool{false, true, true}},
		{"a failure wakes at once", false, 2, []review.Result{failed, allowed}, []bool{true, true}},
		{"every result wakes where each is waited for", true, 3, []review.Result{allowed, allowed, allowed}, []bool{true, true, true}},
		{"a result without verdict and failure wakes", false, 2, []review.Result{{}, allowed}, []bool{true, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := newInbox(c.calls, c.each)
			box.expect(c.calls)
			var taken []delivery
			for i, r := range c.results {
				box.put(i, r)
				woken := false
				select {
				case <-box.wake:
					woken = true
				default:
				}
				if woken != c.want[i] {
					t.Errorf("result %d: woken %v, want %v", i, woken, c.want[i])
				}
				if woken {
					taken = append(taken, box.take(nil)...)
				}
			}
			taken = append(taken, box.take(nil)...)
			if len(taken) != len(c.results) {
				t.Fatalf("%d results taken, want %d", len(taken), len(c.results))
			}
			for i, d := range taken {
				if d.id != i || d.at.IsZero() {
					t.Errorf("result %d is %+v", i, d)
				}
			}
		})
	}
}

func TestInboxTakesMoreResultsThanWereExpected(t *testing.T) {
	box := newInbox(1, false)
	for i := range 1000 {
		box.put(i, review.Fail(review.FailureLost, "lost"))
	}
	if n := len(box.take(nil)); n != 1000 {
		t.Errorf("%d results taken", n)
	}
}

func TestInboxGivesRoomBackThatWasTaken(t *testing.T) {
	box := newInbox(2, false)
	box.put(0, review.Result{})
	first := box.take(nil)
	box.put(1, review.Result{})
	second := box.take(first)
	box.put(2, review.Result{})
	if third := box.take(second); len(third) != 1 || third[0].id != 2 || &third[0] != &first[0] {
		t.Errorf("third take is %+v, not in the room of the first", third)
	}
}

func TestInboxWakesWhenItIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, begun := newInbox(1, false), time.Now()
		for _, wait := range []time.Duration{time.Second, time.Minute, -time.Second} {
			box.wakeIn(time.Hour) // which does not count: the last one does
			box.wakeIn(wait)
			<-box.wake
			if took := time.Since(begun); took != max(0, wait) {
				t.Errorf("woken after %s, it was to be after %s", took, wait)
			}
			begun = time.Now()
		}
		box.wakeIn(time.Second)
		box.close()
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		if len(box.wake) > 0 {
			t.Error("woken after it was over")
		}
	})
}
