package hostsdk

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

func part(call, total uint64, hooks uint32, data string) *wire.ChunkView {
	return &wire.ChunkView{CallID: call, Total: total, Hooks: hooks, Data: []byte(data)}
}

// TestChunksThatBreakTheContract end the session: the next bytes could not be told apart from the missing bytes.
func TestChunksThatBreakTheContract(t *testing.T) {
	tests := map[string]struct {
		chunks []*wire.ChunkView
		want   string
	}{
		"A chunk of another review comes before the end of the first.": {
			[]*wire.ChunkView{part(1, 9, 1, "abc"), part(2, 9, 1, "abc")}, "call 2 came while call 1 was incomplete",
		},
		"The total changes.":           {[]*wire.ChunkView{part(1, 9, 1, "abc"), part(1, 8, 1, "abc")}, "do not agree"},
		"The number of hooks changes.": {[]*wire.ChunkView{part(1, 9, 1, "abc"), part(1, 9, 2, "abc")}, "do not agree"},
		"A chunk has no data.":         {[]*wire.ChunkView{part(1, 9, 1, "")}, "was empty"},
		"A review has no size.":        {[]*wire.ChunkView{part(1, 0, 1, "abc")}, "longer than the 0 bytes"},
		"More comes than was said.":    {[]*wire.ChunkView{part(1, 4, 1, "abc"), part(1, 4, 1, "abc")}, "longer than the 4 bytes"},
		"A review is too large.":       {[]*wire.ChunkView{part(1, defaultFrameBytes+1, 1, "abc")}, "this host takes 4194304"},
		"A review asks too much.":      {[]*wire.ChunkView{part(1, 9, maxReviewHooks+1, "abc")}, "asks 65537 hooks"},
		"What comes is no review.":     {[]*wire.ChunkView{part(1, 3, 1, "\xff\xff\xff")}, "are no review"},
		"The review is another call.":  {[]*wire.ChunkView{part(1, 2, 0, "\x08\x02")}, "hold call 2 of 0 hooks, not 0"},
		"The review asks other hooks.": {[]*wire.ChunkView{part(1, 2, 3, "\x08\x01")}, "hold call 1 of 0 hooks, not 3"},
		"A call comes twice.":          {[]*wire.ChunkView{part(7, 3, 1, "abc")}, "call 7 came twice"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := welcomedState(t, 10)
			take(s, start, reviewOf(7, 1))
			var out effects
			for i, c := range tt.chunks {
				if out.abort != nil {
					t.Fatalf("chunk %d was too much: %v", i-1, out.abort)
				}
				out = s.chunk(start, c)
			}
			if out.abort == nil || !strings.Contains(out.abort.Error(), tt.want) {
				t.Errorf("abort %v, want %q", out.abort, tt.want)
			}
		})
	}
}

// TestTheCallOfAReviewInChunksIsTaken: the same call does not come as a frame of its own.
func TestTheCallOfAReviewInChunksIsTaken(t *testing.T) {
	s := welcomedState(t, 10)
	s.chunk(start, part(1, 100, 1, "abc"))
	if out := take(s, start, reviewOf(1, 1)); out.abort == nil {
		t.Error("call 1 came twice")
	}
}

// TestATotalCostsNothingBeforeItsBytes: memory follows the received bytes, and never passes the announced total.
func TestATotalCostsNothingBeforeItsBytes(t *testing.T) {
	const total = 1 << 20
	a := assembly{limit: total}
	data := strings.Repeat("x", 1000)
	for have := 0; have+len(data) < total; {
		if _, err := a.addChunk(start, part(1, total, 1, data)); err != nil {
			t.Fatal(err)
		}
		have += len(data)
		if cap(a.data) > max(2*have, len(data)) || cap(a.data) > total {
			t.Fatalf("%d bytes came, %d are held", have, cap(a.data))
		}
	}
	if a.drop(); a.data != nil {
		t.Error("a cancelled review is still held")
	}
}

// TestAReviewInChunksIsTheReview cuts random reviews at random places, with cancellations of single hooks and other
// reviews between the chunks, and compares the effects with the effects of the whole review.
func TestAReviewInChunksIsTheReview(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := reviewOf(1, 1+random.IntN(3))
		r.Request.Uid = strings.Repeat("u", random.IntN(500))
		early := &hostv1.Cancel{CallId: 1, HookIndexes: []uint32{uint32(random.IntN(3))}}
		one, two := welcomedState(t, 10), welcomedState(t, 10)
		one.cancel(start, early)
		whole := take(one, start, r)

		two.cancel(start, early)
		encoded := marshal(t, r)
		now, total, other := start, uint64(len(encoded)), uint64(1)
		var last effects
		for len(encoded) > 0 {
			n := 1 + random.IntN(min(len(encoded), 200))
			last = two.chunk(now, &wire.ChunkView{CallID: 1, Total: total, Hooks: uint32(len(r.GetHooks())), Data: encoded[:n]})
			encoded, now = encoded[n:], now.Add(time.Millisecond)
			if other++; len(encoded) > 0 && random.IntN(2) == 0 {
				if out := take(two, now, reviewOf(other, 1)); len(out.start) == 1 {
					finish(two, now, pair{id: other})
				}
				sent(t, two)
			}
		}
		if diff := cmp.Diff(sent(t, one), sent(t, two), protocmp.Transform()); diff != "" || last.abort != nil || len(last.start) != len(whole.start) {
			t.Fatalf("seed %d: whole %d, in chunks %d, %v\n%s", seed, len(whole.start), len(last.start), last.abort, diff)
		}
		for i := range last.start {
			got, want := &last.start[i], &whole.start[i]
			if got.pair != want.pair || !got.deadline.Equal(want.deadline) || got.subject().Cluster() != want.subject().Cluster() {
				t.Fatalf("seed %d: %v, want %v", seed, got.pair, want.pair)
			}
		}
	}
}
