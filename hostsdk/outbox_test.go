package hostsdk

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// verdictOf is an encoded verdict of at least size bytes.
func verdictOf(call uint64, size int) []byte {
	return encodeVerdict(nil, &hostv1.Verdict{
		CallId: call, Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: string(make([]byte, size))}},
	})
}

// read decodes the frames of an outbox: the number of verdicts in each, and the calls in their order.
func read(t *testing.T, frames [][]byte) (sizes []int, calls []uint64) {
	t.Helper()
	for _, encoded := range frames {
		m := &hostv1.ConnectRequest{}
		if err := proto.Unmarshal(encoded, m); err != nil {
			t.Fatal(err)
		}
		several := m.GetVerdicts().GetVerdicts()
		if v := m.GetVerdict(); v != nil {
			several = append(several, v)
		}
		for _, v := range several {
			calls = append(calls, v.GetCallId())
		}
		sizes = append(sizes, len(several))
	}
	return sizes, calls
}

func TestVerdictsThatWaitShareAFrame(t *testing.T) {
	tests := map[string]struct {
		limit int // 0: the dispatcher does not take it
		fill  func(o *outbox)
		want  []int
	}{
		"One is sent as it is.":                 {1 << 20, func(o *outbox) { o.verdict(verdictOf(1, 1)) }, []int{1}},
		"Two are sent together.":                {1 << 20, many(2, 1), []int{2}},
		"Two go alone to who knows no better.":  {0, many(2, 1), []int{1, 1}},
		"No more than so many.":                 {1 << 20, many(2*maxBatch+1, 1), []int{maxBatch, maxBatch, 1}},
		"No more than so many bytes.":           {1 << 20, many(3, maxBatchBytes/2), []int{1, 1, 1}},
		"No more than the dispatcher takes.":    {1000, many(5, 400), []int{2, 2, 1}},
		"A large one goes alone.":               {1 << 20, many(1, 1<<19), []int{1}},
		"What is between them keeps its place.": {1 << 20, between, []int{2, 0, 1}},
		"Nothing is nothing.":                   {1 << 20, func(*outbox) {}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var o outbox
			if tt.limit > 0 {
				o.allowBatches(tt.limit)
			}
			tt.fill(&o)
			frames := o.takeFrames(nil)
			sizes, calls := read(t, frames)
			if len(sizes) != len(tt.want) {
				t.Fatalf("%d frames of %v verdicts, want %v", len(frames), sizes, tt.want)
			}
			for i := range sizes {
				if sizes[i] != tt.want[i] {
					t.Errorf("frames of %v verdicts, want %v", sizes, tt.want)
				}
				if sizes[i] > 1 && len(frames[i]) > min(tt.limit, maxBatchBytes) {
					t.Errorf("a frame of %d bytes", len(frames[i]))
				}
			}
			for i, call := range calls {
				if call != uint64(i+1) {
					t.Errorf("verdicts in the order %v", calls)
				}
			}
			if o.waiting != 0 || len(o.takeFrames(nil)) != 0 {
				t.Error("something is left")
			}
		})
	}
}

func many(n, size int) func(o *outbox) {
	return func(o *outbox) {
		for i := range n {
			o.verdict(verdictOf(uint64(i+1), size))
		}
	}
}

func between(o *outbox) {
	o.verdict(verdictOf(1, 1))
	o.verdict(verdictOf(2, 1))
	o.message(pong(1))
	o.verdict(verdictOf(3, 1))
}

// TestAnOutboxLosesNothing fills and empties one at random.
func TestAnOutboxLosesNothing(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		var o outbox
		if seed%2 == 0 {
			o.allowBatches(1 + random.IntN(2*maxBatchBytes))
		}
		var added, got []uint64
		for i := range uint64(500) {
			switch random.IntN(5) {
			case 0:
				o.message(pong(i))
			case 1:
				_, calls := read(t, o.takeFrames(nil))
				got = append(got, calls...)
			default:
				o.verdict(verdictOf(i+1, random.IntN(2000)))
				added = append(added, i+1)
			}
		}
		_, calls := read(t, o.takeFrames(nil))
		got = append(got, calls...)
		if len(got) != len(added) {
			t.Fatalf("seed %d: %d of %d", seed, len(got), len(added))
		}
		for i := range got {
			if got[i] != added[i] {
				t.Fatalf("seed %d: verdict %d is of call %d, want %d", seed, i, got[i], added[i])
			}
		}
	}
}

// TestALargeVerdictIsNotKept: the memory of one patch is not held for the life of the session.
func TestALargeVerdictIsNotKept(t *testing.T) {
	var o outbox
	o.verdict(verdictOf(1, 1<<20))
	o.takeFrames(nil)
	if cap(o.run) > maxBatchBytes {
		t.Errorf("%d bytes are kept", cap(o.run))
	}
}
