package config

import (
	"context"
	"time"
)

// Source is one place that documents come from.
type Source interface {
	// Name names the source in problems and revisions. It is the same for every dispatcher that reads the same place.
	Name() string
	// List reads the configuration as it is now. It proves that the one in force still holds, so work that takes long and is not
	// needed for that belongs into Listing.Decode. An error means that nothing is known: the last listing stays in
	// force until it is too old. Bad documents are no error; they are in Listing.Problems. A Store calls List from
	// one goroutine at a time; the listing is not changed by either side afterwards.
	List(ctx context.Context) (Listing, error)
	// Watch calls notify once it watches, and when something may have changed, until ctx ends or the watch does. It is an
	// optimisation: a Store lists anyway. The error says why it cannot watch; a Store watches again, after a pause.
	Watch(ctx context.Context, notify func()) error
}

// Listing is the content of a source at one moment.
type Listing struct {
	// Revision is a digest of everything that was read. Equal revisions of one source mean equal listings.
	Revision string
	// Objects are the valid documents, in any order. Several may be the same object: the Store refuses them.
	Objects []Object
	// Problems are about the documents that are not valid. One with a complete Key and another code than CodeKind keeps
	// the last good version of its object; any other keeps the last good objects of its File, or without File in the source.
	Problems Problems
	// Decode, if set, returns Objects and Problems, which are empty then. A Store calls it for listings that it is about to put
	// into force, one call at a time for each source, and beside List.
	Decode func() ([]Object, Problems)
	// Again is how soon the source wants to be listed again; 0 means after store.ListInterval, which it is at the latest.
	Again time.Duration
	// Started is when the reading began: later writes may be missing. The Store sets it.
	Started time.Time
}

// Decoded is the listing with its Objects and Problems.
func (l Listing) Decoded() Listing {
	if l.Decode != nil {
		l.Objects, l.Problems = l.Decode()
		l.Decode = nil
	}
	return l
}

// Sooner is the shorter of two times after which a source is listed again, of which 0 is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
