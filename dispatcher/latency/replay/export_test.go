package replay

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
)

// Recorded is a review and its replay without a change.
type Recorded struct {
	*latency.ReviewRecord
	replayed judged
	ok       bool
}

// Same reports whether the replay has the outcome and the time of the record.
func (r *Recorded) Same() bool {
	return r.Like(r.ReviewRecord) && r.Exact()
}

// Text is the replay.
func (r *Recorded) Text() string { return fmt.Sprintf("%+v", r.replayed) }

// Exact reports whether all that the replay needed was recorded.
func (r *Recorded) Exact() bool { return r.replayed.estimated == 0 && r.replayed.overdue == 0 }

// Like reports whether the replay has the outcome and the time of another review.
func (r *Recorded) Like(v *latency.ReviewRecord) bool {
	return r.ok && r.replayed.outcome == v.Outcome && r.replayed.took == v.Took
}

// Replayed replays the reviews with a change.
func Replayed(in Input, variant Variant) (all []Recorded, err error) {
	kept, weights := in.weighted()
	known := newReviews(kept, weights)
	c, err := variant.on(in.Hooks, known)
	if err != nil {
		return nil, err
	}
	for _, v := range kept {
		r := Recorded{ReviewRecord: v}
		r.replayed, r.ok = newRecording(v, known, in.Hooks).play(c)
		all = append(all, r)
	}
	return all, nil
}
