package dispatcher

import (
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// callResult is the result of one call, with the time at which it came.
type callResult struct {
	id     int
	at     time.Time
	result review.Result
}

// resultQueue holds the results of the calls of one review until its goroutine takes them, and wakes that goroutine. Results
// may come from any goroutine; none is refused. A denial or a failure wakes at once. If all calls that were started
// together allow, only the last result wakes, since an allow decides nothing while another hook may still deny.
type resultQueue struct {
	wakeups  chan struct{} // capacity 1: wake-ups coalesce
	wakeEach bool          // every result wakes
	timer    *time.Timer   // nil until wakeAfter; used by the review's goroutine only

	mu          sync.Mutex
	results     []callResult
	outstanding int // calls without a result
}

func (q *resultQueue) init(n int, wakeEach bool) {
	q.wakeups, q.wakeEach, q.results = make(chan struct{}, 1), wakeEach, make([]callResult, 0, n)
}

// addCalls counts calls that are about to be started.
func (q *resultQueue) addCalls(calls int) {
	q.mu.Lock()
	q.outstanding += calls
	q.mu.Unlock()
}

// addResult adds the result of a call. It never blocks.
func (q *resultQueue) addResult(id int, r review.Result) {
	d := callResult{id, time.Now(), r}
	q.mu.Lock()
	q.results = append(q.results, d)
	q.outstanding--
	due := q.wakeEach || q.outstanding == 0 || !r.Verdict.GetAllowed()
	q.mu.Unlock()
	if due {
		q.wake()
	}
}

func (q *resultQueue) wake() {
	select {
	case q.wakeups <- struct{}{}:
	default:
	}
}

// wakeAfter wakes the goroutine of the review after d. A later call replaces the timer.
func (q *resultQueue) wakeAfter(d time.Duration) {
	if d <= 0 { // a timer that is due at once can crash Go 1.26's race detector in a synctest bubble
		q.wake()
		return
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.wake)
		return
	}
	q.timer.Reset(d)
}

func (q *resultQueue) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
	}
}

// timingOf returns the timing of a result that was added and not taken; zero if there is none.
func (q *resultQueue) timingOf(id int) review.Timing {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.results {
		if r.id == id {
			return r.result.Timing
		}
	}
	return review.Timing{}
}

// takeResults returns the results that were added since the last call, in their order. before is the slice that the last
// call returned; its memory is used for the next results.
func (q *resultQueue) takeResults(before []callResult) []callResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.results
	q.results = before[:0]
	return taken
}
