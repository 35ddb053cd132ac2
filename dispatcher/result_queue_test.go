package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestResultQueueWakesWhenSomethingCanBeDecided(t *testing.T) {
	allowed := review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}}
	denied := review.Result{Verdict: &admissionv1.AdmissionResponse{}}
	failed := review.Fail(review.FailureLost, "lost")
	for _, c := range []struct {
		name     string
		wakeEach bool
		calls    int
		results  []review.Result
		want     []bool // whether each result wakes
	}{
		{"the last of calls that allow wakes", false, 3, []review.Result{allowed, allowed, allowed}, []bool{false, false, true}},
		{"a denial wakes at once, and the last result too", false, 3, []review.Result{allowed, denied, allowed}, []bool{false, true, true}},
		{"a failure wakes at once", false, 2, []review.Result{failed, allowed}, []bool{true, true}},
		{"every result wakes where each is waited for", true, 3, []review.Result{allowed, allowed, allowed}, []bool{true, true, true}},
		{"a result without verdict and failure wakes", false, 2, []review.Result{{}, allowed}, []bool{true, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var queue resultQueue
			queue.init(c.calls, c.wakeEach)
			queue.addCalls(c.calls)
			var taken []callResult
			for i, r := range c.results {
				queue.addResult(i, r)
				woken := false
				select {
				case <-queue.wakeups:
					woken = true
				default:
				}
				if woken != c.want[i] {
					t.Errorf("result %d: woken %v, want %v", i, woken, c.want[i])
				}
				if woken {
					taken = append(taken, queue.takeResults(nil)...)
				}
			}
			taken = append(taken, queue.takeResults(nil)...)
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

func TestResultQueueTakesMoreResultsThanWereExpected(t *testing.T) {
	var queue resultQueue
	queue.init(1, false)
	for i := range 1000 {
		queue.addResult(i, review.Fail(review.FailureLost, "lost"))
	}
	if n := len(queue.takeResults(nil)); n != 1000 {
		t.Errorf("%d results taken", n)
	}
}

func TestResultQueueReusesTakenMemory(t *testing.T) {
	var queue resultQueue
	queue.init(2, false)
	queue.addResult(0, review.Result{})
	first := queue.takeResults(nil)
	queue.addResult(1, review.Result{})
	second := queue.takeResults(first)
	queue.addResult(2, review.Result{})
	if third := queue.takeResults(second); len(third) != 1 || third[0].id != 2 || &third[0] != &first[0] {
		t.Errorf("third take is %+v, not in the memory of the first", third)
	}
}

func TestResultQueueWakesWhenItIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue resultQueue
		queue.init(1, false)
		begun := time.Now()
		for _, wait := range []time.Duration{time.Second, time.Minute, -time.Second} {
			queue.wakeAfter(time.Hour) // which does not count: the last one does
			queue.wakeAfter(wait)
			<-queue.wakeups
			if took := time.Since(begun); took != max(0, wait) {
				t.Errorf("woken after %s, it was to be after %s", took, wait)
			}
			begun = time.Now()
		}
		queue.wakeAfter(time.Second)
		queue.stopTimer()
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		if len(queue.wakeups) > 0 {
			t.Error("woken after it was over")
		}
	})
}
