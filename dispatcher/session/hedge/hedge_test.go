package hedge

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// failureOf is the kind of failure with a name.
func failureOf(t *testing.T, name string) review.FailureKind {
	t.Helper()
	for k := review.FailureTimeout; k <= review.FailureCancelled; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("no failure is called %q", name)
	return 0
}

func TestTheFirstVerdictEndsARaceOrBothFailures(t *testing.T) {
	for _, test := range []struct {
		name   string
		events string // join, leave, abort, lose, or the result of a ticket
		want   string // one for each event
	}{
		{"one ticket", "allowed", "allowed"},
		{"one ticket that fails", "handler", "handler"},
		{"a verdict ends it", "join allowed denied", "yes allowed -"},
		{"a denial is a verdict", "join denied allowed", "yes denied -"},
		{"a failure waits for the other ticket", "join lost allowed", "yes - allowed"},
		{"a failure after the verdict is nobody's concern", "join allowed handler", "yes allowed -"},
		{"both fail: what the host said tells more than that it was lost", "join lost handler", "yes - handler"},
		{"both fail, the other way round", "join handler lost", "yes - handler"},
		{"both fail: lost tells more than refused", "join refused lost", "yes - lost"},
		{"both fail alike: the first is told", "join timeout lost", "yes - timeout"},
		{"nobody joins a race that is over", "allowed join", "allowed no"},
		{"nobody joins a call that was on a session that ended", "lose join", "yes no"},
		{"a lost ticket has the other one for a second try", "join lose", "yes no"},
		{"it is lost once only", "lose lose", "yes no"}, //nolint:dupword // two events
		{"both are lost", "join lost lose lost", "yes - no lost"},
		{"it may be lost when the other one came to nothing", "join refused lose", "yes - yes"},
		{"a ticket that was never sent leaves no trace", "join leave lost", "yes - lost"},
		{"it leaves after the other one failed", "join handler leave", "yes - handler"},
		{"it leaves a race that is over", "join allowed leave", "yes allowed -"},
		{"an aborted race has no result", "join abort allowed lost abort", "yes yes - - no"}, //nolint:dupword // two answers
		{"a race that is over cannot be aborted", "allowed abort", "allowed no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, got := newRace(), []string(nil)
			for e := range strings.FieldsSeq(test.events) {
				got = append(got, raceEvent(t, &r, e))
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}

// raceEvent applies an event to a race and returns the effects.
func raceEvent(t *testing.T, r *race, event string) string {
	t.Helper()
	answer := map[bool]string{true: "yes", false: "no"}
	var end review.Result
	var ends bool
	switch event {
	case "join":
		return answer[r.join()]
	case "abort":
		return answer[r.abort()]
	case "lose":
		return answer[r.mayRetryLost()]
	case "leave":
		end, ends = r.withdraw()
	case "allowed", "denied":
		end, ends = r.arrive(review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: event == "allowed"}})
	default:
		end, ends = r.arrive(review.Fail(failureOf(t, event), "so it was"))
	}
	switch {
	case !ends:
		return "-"
	case end.Failure != nil:
		return end.Failure.Kind.String()
	case end.Verdict.GetAllowed():
		return "allowed"
	}
	return "denied"
}

func TestOfACallThatIsMadeTwiceNoVerdictIsLost(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"allowed", "denied", "lost", "handler", "refused"}
	for range 2000 {
		r, results := newRace(), []string{kinds[random.IntN(len(kinds))], kinds[random.IntN(len(kinds))]}
		raceEvent(t, &r, "join")
		ends := slices.DeleteFunc([]string{raceEvent(t, &r, results[0]), raceEvent(t, &r, results[1])}, func(s string) bool {
			return s == "-"
		})
		verdict := slices.IndexFunc(results, func(s string) bool { return s == "allowed" || s == "denied" })
		if len(ends) != 1 || verdict >= 0 && ends[0] != results[verdict] {
			t.Fatalf("%v ended as %v", results, ends)
		}
	}
}

func TestExtraCallsAreAtMostTheirShareOfAllCalls(t *testing.T) {
	for _, percent := range []int{1, 5, 30, 100} {
		var b budget
		extra := 0
		for call := 1; call <= 10_000; call++ {
			b.earn(percent)
			if b.spend() { // every call is late
				extra++
			}
			if 100*extra > percent*call {
				t.Fatalf("%d %%: %d extra calls of %d", percent, extra, call)
			}
		}
		if extra != 100*percent {
			t.Errorf("%d %%: %d extra calls of 10,000", percent, extra)
		}
	}
}

func TestExtraCallsAreNotSavedUp(t *testing.T) {
	var b budget
	if b.spend() {
		t.Error("spent what nobody earned")
	}
	for range 10_000 { // in a quiet hour
		b.earn(50)
	}
	b.refund()
	burst := 0
	for b.spend() {
		burst++
	}
	if burst != Burst {
		t.Errorf("a burst of %d extra calls, want %d", burst, Burst)
	}
	b.refund()
	if !b.spend() || b.spend() {
		t.Error("one call was given back")
	}
	b.earn(-1)
	b.earn(1000) // counts as 100
	if !b.spend() || b.spend() {
		t.Error("a call is made twice at most")
	}
}

// TestTheEstimateIsAtMostAnEighthAboveTheExactPercentile compares with sorting, for latencies of many shapes.
func TestTheEstimateIsAtMostAnEighthAboveTheExactPercentile(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	shapes := map[string]func() time.Duration{
		"constant":     func() time.Duration { return 1234 * time.Microsecond },
		"uniform":      func() time.Duration { return time.Duration(random.Int64N(int64(time.Second))) },
		"exponential":  func() time.Duration { return time.Duration(random.ExpFloat64() * float64(3*time.Millisecond)) },
		"two replicas": func() time.Duration { return time.Duration(1+9*(random.IntN(10)/9)) * time.Millisecond },
		"tiny":         func() time.Duration { return time.Duration(random.IntN(9000)) },
	}
	for name, shape := range shapes {
		for _, n := range []int{Samples, 5 * Samples, 2*Window - Samples} {
			var l latencies
			seen := make([]time.Duration, n)
			for i := range seen {
				seen[i] = shape()
				l.observe(seen[i])
			}
			slices.Sort(seen)
			exact := seen[(95*n+99)/100-1]
			if got := l.p95(); got < exact || got > exact+exact/8+2*time.Microsecond {
				t.Errorf("%s, %d calls: estimated %s, it is %s", name, n, got, exact)
			}
		}
	}
}

func TestTheEstimateForgets(t *testing.T) {
	var l latencies
	for range Samples - 1 {
		l.observe(time.Second)
	}
	if l.p95() != 0 {
		t.Errorf("an estimate of %s after %d calls", l.p95(), Samples-1)
	}
	for range 10 * Window {
		l.observe(time.Second)
	}
	for range 8 * Window {
		l.observe(time.Millisecond)
	}
	if got := l.p95(); got > 2*time.Millisecond {
		t.Errorf("estimated %s long after calls have become quick", got)
	}
	for range Window {
		l.observe(time.Second)
	}
	if got := l.p95(); got < time.Second {
		t.Errorf("estimated %s when calls have become slow", got)
	}
}

func TestEveryTimeIsCountedWhereItBelongs(t *testing.T) {
	for place := range magnitudes {
		d := longest(place) - time.Nanosecond
		if got := magnitude(d); got != place {
			t.Errorf("%s is counted at %d, want %d", d, got, place)
		}
		if got := magnitude(longest(place)); got != min(place+1, magnitudes-1) {
			t.Errorf("%s is counted at %d, want %d", longest(place), got, place+1)
		}
	}
	for _, d := range []time.Duration{-time.Second, time.Hour} {
		if p := magnitude(d); p < 0 || p >= magnitudes {
			t.Errorf("%s is counted at %d", d, p)
		}
	}
}

// TestARaceThatEndsWhenASecondTicketIsTakenBackIsOver has the first ticket fail before the second one, which found no slot, is
// taken back. Whoever cancels the call then, or brings another result, is late.
func TestARaceThatEndsWhenASecondTicketIsTakenBackIsOver(t *testing.T) {
	r := newRace()
	if !r.join() {
		t.Fatal("no second ticket")
	}
	if _, ends := r.arrive(review.Fail(review.FailureHandler, "no database")); ends {
		t.Fatal("it ends although a ticket is out")
	}
	if end, ends := r.withdraw(); !ends || end.Failure.Kind != review.FailureHandler {
		t.Fatalf("got %+v, %t", end, ends)
	}
	if r.abort() {
		t.Error("it can be cancelled although it has ended")
	}
	if _, ends := r.arrive(review.Fail(review.FailureLost, "the session ended")); ends || r.join() || r.mayRetryLost() {
		t.Error("it goes on although it has ended")
	}
}
