package session

import (
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// view is the hooks that sessions can serve: those of one snapshot, and those that reviews by an earlier one may still
// call. It never changes once it is in place.
type view struct {
	revision string
	pools    map[match.HookID]*pool
	byOffer  map[offer][]*pool
	removed  map[match.HookID]time.Time // since when the snapshot has no such hook
}

func newView(revision string) *view {
	return &view{
		revision: revision, pools: map[match.HookID]*pool{}, byOffer: map[offer][]*pool{}, removed: map[match.HookID]time.Time{},
	}
}

// add takes in the pool of a hook.
func (v *view) add(id match.HookID, p *pool) {
	v.pools[id] = p
	key := offer{id.Name, int32(id.Stage)}
	v.byOffer[key] = append(v.byOffer[key], p)
}

// inherit takes in the pools of hooks that are no longer there, while reviews may call them.
func (v *view) inherit(old *view, now time.Time) {
	for id, p := range old.pools {
		if v.pools[id] != nil {
			continue
		}
		since, before := old.removed[id]
		if !before {
			since = now
		}
		if now.Sub(since) < MaxReview {
			v.add(id, p)
			v.removed[id] = since
		}
	}
}

// expired reports whether the time of a removed hook is over.
func (v *view) expired(now time.Time) bool {
	for _, since := range v.removed {
		if now.Sub(since) >= MaxReview {
			return true
		}
	}
	return false
}

// offered are the pools that an offer is about: those of the snapshot, or else those of hooks that are gone.
func (v *view) offered(o offer) []*pool {
	all := v.byOffer[o]
	current := slices.DeleteFunc(slices.Clone(all), func(p *pool) bool {
		_, removed := v.removed[p.hook.Load().ID]
		return removed
	})
	if len(current) > 0 {
		return current
	}
	return all
}

// offer is how hosts name a hook.
type offer struct {
	name  string
	stage int32
}
