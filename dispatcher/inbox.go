package dispatcher

import (
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// delivery is the result of a call on its way to the machine.
type delivery struct {
	id     int
	at     time.Time
	result review.Result
}

// inbox takes the results of the calls of one review, from any goroutine and as many as come, and wakes the goroutine of
// the review. Of calls that were made together that is once, when the last of them has said yes: what a hook allows
// decides nothing while another one may deny. Everything else wakes it at once.
type inbox struct {
	wake  chan struct{} // holds one wake-up
	each  bool          // every result wakes
	timer *time.Timer   // of the review's goroutine; nil until it has waited

	mu      sync.Mutex
	results []delivery
	open    int // calls whose results have not come
}

// newInbox is an inbox for about n results. each is for reviews that go on with every result.
func newInbox(n int, each bool) *inbox {
	return &inbox{wake: make(chan struct{}, 1), each: each, results: make([]delivery, 0, n)}
}

// expect takes note of calls that are about to be made.
func (i *inbox) expect(calls int) {
	i.mu.Lock()
	i.open += calls
	i.mu.Unlock()
}

// put takes the result of a call. It never blocks.
func (i *inbox) put(id int, r review.Result) {
	d := delivery{id, time.Now(), r}
	i.mu.Lock()
	i.results = append(i.results, d)
	i.open--
	due := i.each || i.open == 0 || !r.Verdict.GetAllowed()
	i.mu.Unlock()
	if due {
		i.nudge()
	}
}

// nudge wakes the goroutine of the review.
func (i *inbox) nudge() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// wakeIn wakes the goroutine of the review after a while, if nothing else has. The last time counts.
func (i *inbox) wakeIn(d time.Duration) {
	if d <= 0 { // a timer that is due at once can crash Go 1.26's race detector in a synctest bubble
		i.nudge()
		return
	}
	if i.timer == nil {
		i.timer = time.AfterFunc(d, i.nudge)
		return
	}
	i.timer.Reset(d)
}

// close ends the wait.
func (i *inbox) close() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// take returns the results that have come, in the order in which they came, and keeps room for more in the place of those
// that were taken before.
func (i *inbox) take(before []delivery) []delivery {
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := i.results
	i.results = before[:0]
	return taken
}
