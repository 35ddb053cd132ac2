package config

import (
	"slices"
	"time"
)

// MaxCompileTime is how long reviews go on being judged by the generation in force after a listing has shown a newer one, at
// most, while that is decoded and compiled. Past it the age of the one in force counts on, and reviews are held when it has
// reached its maximum.
const MaxCompileTime = 30 * time.Second

// standing is what the listings have shown of a generation.
type standing struct {
	// seen are the revisions of the listings that make the generation, by source.
	seen []string
	// begun is when the oldest of the listings began by which the generation may judge: the last ones that showed it, or that
	// showed a newer one within MaxCompileTime.
	begun time.Time
	// superseded is when the listing began that was the first to show a newer one; zero while none has.
	superseded time.Time
}

// shows takes a complete set of listings: what they show, when the oldest of them began, and when the latest. fresh says
// whether the generation could still judge before it.
//
// A generation that has become too old is not judged by again because of a listing that shows another one: whoever waited for
// this dispatcher to take over the newer one may have been told that it is gone.
func (s *standing) shows(seen []string, oldest, latest time.Time, fresh bool) {
	switch {
	case slices.Equal(seen, s.seen):
		s.begun, s.superseded = oldest, time.Time{}
		return
	case s.superseded.IsZero():
		s.superseded = latest
	}
	if last := s.superseded.Add(MaxCompileTime); oldest.After(last) {
		oldest = last
	}
	if fresh && oldest.After(s.begun) {
		s.begun = oldest
	}
}
