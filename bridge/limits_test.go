package bridge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestReviewTime(t *testing.T) {
	tests := map[string]struct {
		asked, entry, want time.Duration
	}{
		"A whole second may have been rounded up":                   {10 * time.Second, 0, 8900 * time.Millisecond},
		"The entry's own timeout was not rounded":                   {10 * time.Second, 10 * time.Second, 9900 * time.Millisecond},
		"Less than the entry's own timeout was":                     {7 * time.Second, 10 * time.Second, 5900 * time.Millisecond},
		"The longest":                                               {MaxTimeout, 0, 28900 * time.Millisecond},
		"Two seconds, of which the reserves leave less than a half": {2 * time.Second, 0, time.Second},
		"One second":                                {time.Second, 0, 500 * time.Millisecond},
		"One second that was not rounded":           {time.Second, time.Second, 900 * time.Millisecond},
		"The reserves leave exactly a half":         {2200 * time.Millisecond, 0, 1100 * time.Millisecond},
		"A timeout below the reserve for transport": {50 * time.Millisecond, 50 * time.Millisecond, 25 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			usable, uncertain := reviewTime(test.asked, test.entry)
			if got := usable - uncertain; got != test.want {
				t.Errorf("reviewTime(%v, %v) is certain of %v, want %v", test.asked, test.entry, got, test.want)
			}
			if want := max(test.asked-transportReserve, test.asked/leastPart); usable != want {
				t.Errorf("reviewTime(%v, %v) = %v, want %v", test.asked, test.entry, usable, want)
			}
		})
	}
	inside := func(asked, entry uint32) bool {
		a, e := time.Duration(asked)+1, time.Duration(entry)
		usable, uncertain := reviewTime(a, e)
		certain := usable - uncertain
		return uncertain >= 0 && uncertain <= roundingSlack && certain >= a/leastPart && usable < a
	}
	if err := quick.Check(inside, nil); err != nil {
		t.Errorf("between a half and the whole: %v", err)
	}
}

// An API server says how long it still waits in whole seconds, rounded up. Whatever is left to it, the answer is sent while
// it waits, and time is left for the way back: for everything but its last second, in which nothing could be done.
func TestTheAnswerIsSentWhileTheAPIServerWaits(t *testing.T) {
	for left := time.Second + time.Millisecond; left <= MaxTimeout; left += 7 * time.Millisecond {
		asked := (left + time.Second - 1).Truncate(time.Second)
		usable, uncertain := reviewTime(asked, 0)
		usable -= uncertain
		if usable >= left || (asked > 2*time.Second && usable > left-transportReserve) {
			t.Errorf("left %v, asked %v: the answer is sent after %v", left, asked, usable)
		}
		// An entry whose own timeout is larger cannot have asked for all of it.
		if got, not := reviewTime(asked, asked+time.Second); got-not != usable {
			t.Errorf("asked %v of an entry with a second more: %v, want %v", asked, got-not, usable)
		}
	}
}

func TestAskedTimeout(t *testing.T) {
	tests := map[string]struct {
		query string
		want  time.Duration
		fails bool
	}{
		"No query":                                      {"", 0, false},
		"A query without timeout":                       {"dryRun=All", 0, false},
		"As Kubernetes sends it":                        {"timeout=10s", 10 * time.Second, false},
		"The first of two":                              {"timeout=1s&timeout=2s", time.Second, false},
		"The longest":                                   {"timeout=30s", MaxTimeout, false},
		"Longer than Kubernetes allows is cut":          {"timeout=34s", MaxTimeout, false},
		"The shortest":                                  {"timeout=1ns", 1, false},
		"Zero is refused":                               {"timeout=0s", 0, true},
		"Less than zero is refused":                     {"timeout=-1s", 0, true},
		"A number without unit is refused":              {"timeout=10", 0, true},
		"Empty is refused":                              {"timeout=", 0, true},
		"A duration past what a number holds is none":   {"timeout=99999999999h", 0, true},
		"A query that cannot be read is refused":        {"timeout=1s;x", 0, true},
		"A query that cannot be unescaped is refused":   {"timeout=%", 0, true},
		"A name of another case is another parameter":   {"Timeout=1s", 0, false},
		"An escaped duration is read":                   {"timeout=1%73", time.Second, false},
		"A parameter that cannot be unescaped, besides": {"x=%&timeout=1s", 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, refused := askedTimeout(test.query)
			if got != test.want || (refused != nil) != test.fails {
				t.Errorf("askedTimeout(%q) = %v, %+v, want %v, fails %t", test.query, got, refused, test.want, test.fails)
			}
		})
	}
}

// The Reviewer is told when the answer is wanted: counted from the request's arrival, less the reserve.
func TestDeadlinesOfReviews(t *testing.T) {
	tests := map[string]struct {
		path string
		want time.Duration
	}{
		"A caller that does not say is given the default": {validatePath, defaultTimeout},
		"A caller that says":                              {validatePath + "?timeout=10s", 8900 * time.Millisecond},
		"An entry whose timeout is known":                 {validatePath + "/closed/10.?timeout=10s", 9900 * time.Millisecond},
		"An entry whose timeout is known to be longer":    {validatePath + "/closed/11.?timeout=10s", 8900 * time.Millisecond},
		"An entry without a plan":                         {validatePath + "/closed?timeout=10s", 8900 * time.Millisecond},
		"An entry with a plan that is malformed":          {validatePath + "/closed/10?timeout=10s", 8900 * time.Millisecond},
		"A caller that asks for too much":                 {validatePath + "?timeout=60s", 28900 * time.Millisecond},
		"A caller that asks for all stages":               {"/v1/clusters/prod-1/admit?timeout=4s", 2900 * time.Millisecond},
	}
	var deadline time.Time
	options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		deadline = r.Deadline.Add(-r.Uncertain)
		return allow(ctx, r)
	})
	e := serve(t, options)
	client := e.client(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			if got := ask(t, client, e.url(test.path), reviewOf("u1", 0)); !got.allowed {
				t.Fatalf("answer = %+v", got)
			}
			if deadline.Before(before.Add(test.want)) || deadline.After(time.Now().Add(test.want)) {
				t.Errorf("deadline %v after the start, want %v", deadline.Sub(before), test.want)
			}
		})
	}
}

// bounds is a ResponseWriter that remembers the deadlines of its connection.
type bounds struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (b *bounds) SetReadDeadline(t time.Time) error {
	b.read = append(b.read, t)
	return nil
}

func (b *bounds) SetWriteDeadline(t time.Time) error {
	b.write = append(b.write, t)
	return nil
}

// A connection is bounded once before the body is read: by the review's time, or by 5 s for a request that is refused before that time is known. Once the body
// is there, the review's own deadline is the only bound.
func TestDeadlinesOfConnections(t *testing.T) {
	b := newBridge(t, testOptions(allow))
	for name, test := range map[string]struct {
		path, contentType string
		read, write       []time.Duration // after the start; 0 is none any more
	}{
		"a review":               {validatePath + "?timeout=10s", "application/json", []time.Duration{8900 * time.Millisecond, 0}, []time.Duration{11 * time.Second}},
		"not JSON":               {validatePath + "?timeout=10s", "text/plain", []time.Duration{refusalTime}, []time.Duration{refusalTime}},
		"a time that is no time": {validatePath + "?timeout=x", "application/json", []time.Duration{refusalTime}, []time.Duration{refusalTime}},
		"no endpoint":            {"/v1/nothing", "application/json", []time.Duration{refusalTime}, []time.Duration{refusalTime}},
	} {
		w := &bounds{ResponseRecorder: httptest.NewRecorder()}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, strings.NewReader(reviewOf("u1", 0)))
		request.Header.Set("Content-Type", test.contentType)
		request.TLS = trusted()
		before := time.Now()
		b.ServeHTTP(w, request)
		after := time.Now()

		check := func(what string, got []time.Time, want []time.Duration) {
			t.Helper()
			if len(got) != len(want) {
				t.Errorf("%s: %s deadlines = %v, want %d", name, what, got, len(want))
				return
			}
			for i, d := range want {
				if d == 0 && got[i].IsZero() {
					continue
				}
				if d == 0 || got[i].Before(before.Add(d)) || got[i].After(after.Add(d)) {
					t.Errorf("%s: %s deadline %d is %v after the start, want %v", name, what, i, got[i].Sub(before), d)
				}
			}
		}
		check("read", w.read, test.read)
		check("write", w.write, test.write)
	}
}

// A caller that hangs up takes its review with it.
func TestACallerThatGoesCancelsItsReview(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	e := serve(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		close(entered)
		<-ctx.Done()
		close(ended)
		return allow(ctx, r)
	}))
	conn := e.dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 0)))
	<-entered
	conn.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the review goes on for nobody")
	}
}

// An API server is still sending when the limit is passed: it reads the denial all the same.
func TestALargeReviewIsDeniedToACallerThatIsStillSending(t *testing.T) {
	e := serve(t, testOptions(allow))
	for protocol, client := range map[string]*http.Client{"HTTP/1.1": e.client(t), "HTTP/2": e.client2(t)} {
		t.Run(protocol, func(t *testing.T) {
			for range 3 {
				if got := ask(t, client, e.url(validatePath+"?timeout=30s"), reviewOf("u1", 36<<20)); got.uid != "u1" || got.code != http.StatusRequestEntityTooLarge {
					t.Fatalf("answer = %+v, want a denial with 413", got)
				}
			}
		})
	}
}

// The bridge stops reading a body that is longer than any review.
func TestABodyWithoutEnd(t *testing.T) {
	e := serve(t, testOptions(allow))
	conn := e.dial(t)
	conn.send(t, post(validatePath, "", "Content-Length: 1000000000000"))
	conn.send(t, reviewOf("u1", testLimit))
	sent := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(conn, zeros{}) // ends when the connection does
		sent <- n
	}()
	response, body := conn.receive(t)
	if got := understand(t, response, body); got.uid != "u1" || got.code != http.StatusRequestEntityTooLarge || !response.Close {
		t.Errorf("answer = %+v, closes %t, want a denial with 413 and the end", got, response.Close)
	}
	conn.Close()
	if n := <-sent; n < drainBytes/2 {
		t.Errorf("only %d bytes were taken: the answer may be lost to a sender", n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Whoever does not read its answer loses its connection, not our memory.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := strings.Repeat("x", 8<<20)
		judged := make(chan struct{})
		b := newBridge(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
			close(judged)
			return review.Answer{Response: &admissionv1.AdmissionResponse{
				Uid: r.Admission.GetUid(), Status: &admissionv1.Status{Message: huge},
			}}, nil
		}))
		e := serveInBubble(t, b, ServerOptions{})
		conn := e.dial(t)
		conn.send(t, post(validatePath+"?timeout=100ms", reviewOf("u1", 0)))
		<-judged
		eventually(t, "what the review held is given back", func() bool { return e.options.Memory.InUse() == 0 })
		n, err := io.Copy(io.Discard, conn)
		if n >= int64(len(huge)) {
			t.Errorf("%d bytes arrived (error %v): the reader was waited for", n, err)
		}
	})
}

// gate is a Reviewer that holds reviews until they are let go.
type gate struct{ entered, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 16), make(chan struct{})} }

func (g gate) review(ctx context.Context, r *review.Request) (review.Answer, error) {
	g.entered <- struct{}{}
	<-g.open
	return allow(ctx, r)
}

func TestBytesInFlight(t *testing.T) {
	const size = 100 << 10
	g := newGate()
	options := testOptions(g.review)
	options.MaxBodyBytes, options.Memory = size, ledger(16*(size+ReviewBytes))
	e := serve(t, options)
	client := e.client(t)
	body := reviewOf("u1", size)
	answers := make(chan answered, 16)
	hold := func(cluster string, reviews int) {
		for range reviews {
			go func() { answers <- ask(t, client, e.url("/v1/clusters/"+cluster+"/validate"), body) }()
			<-g.entered
		}
	}

	hold("prod-1", 8) // half of the memory
	over := ask(t, client, e.url(validatePath), body)
	if over.status != http.StatusTooManyRequests || over.header.Get("Retry-After") != "1" {
		t.Errorf("past the share of the cluster: %+v, want 429 with Retry-After", over)
	}
	if small := ask(t, client, e.url(validatePath), smallBody); small.status != http.StatusTooManyRequests {
		t.Errorf("a small review past the share: %+v, want 429", small)
	}
	hold("prod-2", 4) // another cluster has room: half of the rest
	if over := ask(t, client, e.url("/v1/clusters/prod-2/validate"), body); over.status != http.StatusTooManyRequests {
		t.Errorf("past the whole: %+v, want 429", over)
	}
	if over := ask(t, client, e.url(validatePath), reviewOf("u1", 2*size)); over.status != http.StatusTooManyRequests {
		t.Errorf("past the whole, and too large to be read: %+v, want 429", over)
	}
	if over := askChunked(t, e, reviewOf("u1", size)); over.status != http.StatusTooManyRequests {
		t.Errorf("past the whole, of unknown length: %+v, want 429", over)
	}

	close(g.open)
	for range 12 {
		if got := <-answers; !got.allowed {
			t.Errorf("a review that was held: %+v", got)
		}
	}
	eventually(t, "everything is given back", func() bool { return e.options.Memory.InUse() == 0 })
	if got := ask(t, client, e.url(validatePath), body); !got.allowed {
		t.Errorf("after all: %+v, want allowed", got)
	}
}

const smallBody = `{"kind":"AdmissionReview"}`

func askChunked(t *testing.T, e *edge, body string) answered {
	t.Helper()
	conn := e.dial(t)
	conn.send(t, post(validatePath, chunked(body), "Transfer-Encoding: chunked", "Content-Length: "))
	response, text := conn.receive(t)
	return understand(t, response, text)
}

// A body of unknown length takes from the budget as it grows, never more than it may have.
func TestABodyOfUnknownLengthGrowsWithinTheBudget(t *testing.T) {
	for _, size := range []int{1, firstChunk - 1, firstChunk, firstChunk + 1, testLimit - 1, testLimit} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			held := reserved(t, ledger(2*(testLimit+1)))
			text := strings.Repeat("x", size)
			got, err := readGrowing(strings.NewReader(text), testLimit, held.Grow)
			if err != nil || string(got) != text {
				t.Errorf("read %d bytes, error %v, want %d", len(got), err, size)
			}
			if int64(cap(got)) != held.Bytes() {
				t.Errorf("a buffer of %d bytes holds %d of the budget", cap(got), held.Bytes())
			}
		})
	}
	narrow := reserved(t, ledger(firstChunk*4/3))
	if _, err := readGrowing(strings.NewReader(strings.Repeat("x", firstChunk+1)), testLimit, narrow.Grow); !overBudget(err) {
		t.Errorf("grew past the budget: %v", err)
	}
}

// reserved is a reservation of nothing yet.
func reserved(t *testing.T, of *memory.Ledger) *memory.Reservation {
	t.Helper()
	reservation, err := of.Reserve("prod-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	return reservation
}
