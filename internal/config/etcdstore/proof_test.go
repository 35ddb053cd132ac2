package etcdstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// The promise is proven from outside: the answers of reviews name the version of the configuration that judged them, since
// its hooks bear that name, and every listing is noted where it leaves etcd.

// listing is one successful listing.
type listing struct {
	version      int64
	begun, ended time.Time
}

// judged is one answered review.
type judged struct {
	version       int64
	digest        string
	asked, lent   time.Time // when a snapshot was asked for, and when it was there: the review began to be judged in between
	disagreements int       // hooks of another version in the same answer
}

// proof holds the listings by version.
type proof struct {
	maxAge   time.Duration
	listings map[int64][]listing
	digests  map[int64]string
	oldest   time.Duration // age of a listing at the moment when somebody asked
}

func newProof(maxAge time.Duration, all []listing) *proof {
	p := &proof{maxAge: maxAge, listings: map[int64][]listing{}, digests: map[int64]string{}}
	for _, l := range all {
		p.listings[l.version] = append(p.listings[l.version], l)
	}
	return p
}

// check is nil if there was a moment between asked and lent at which a successful listing of the same content was known, and
// had begun no longer than maxAge before.
func (p *proof) check(j judged) error {
	if j.disagreements > 0 {
		return fmt.Errorf("judged by version %d and by %d hooks of others", j.version, j.disagreements)
	}
	if known, ok := p.digests[j.version]; ok && known != j.digest {
		return fmt.Errorf("version %d is called %s and %s", j.version, known, j.digest)
	}
	p.digests[j.version] = j.digest
	youngest := time.Duration(-1)
	for _, l := range p.listings[j.version] {
		if l.ended.After(j.lent) || l.ended.Sub(l.begun) > p.maxAge || j.asked.Sub(l.begun) > p.maxAge {
			continue
		}
		if age := max(0, j.asked.Sub(l.begun)); youngest < 0 || age < youngest {
			youngest = age
		}
	}
	if youngest < 0 {
		return fmt.Errorf("judged by version %d, of which no listing began within %s before (%d listings of it)",
			j.version, p.maxAge, len(p.listings[j.version]))
	}
	p.oldest = max(p.oldest, youngest)
	return nil
}

func TestTheProofNeedsAListingInTime(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	good := listing{version: 1, begun: at(10), ended: at(10.5)}
	for name, tc := range map[string]struct {
		listings []listing
		judged   judged
		holds    bool
	}{
		"a listing five seconds before":                     {[]listing{good}, judged{version: 1, asked: at(15), lent: at(15)}, true},
		"a listing longer before":                           {[]listing{good}, judged{version: 1, asked: at(15.001), lent: at(15.001)}, false},
		"of another version":                                {[]listing{good}, judged{version: 2, asked: at(11), lent: at(11)}, false},
		"one that ended only afterwards":                    {[]listing{good}, judged{version: 1, asked: at(10.1), lent: at(10.2)}, false},
		"one that ended while it was waited for":            {[]listing{good}, judged{version: 1, asked: at(3), lent: at(10.6)}, true},
		"one that took longer than it may be old":           {[]listing{{1, at(1), at(7)}}, judged{version: 1, asked: at(6), lent: at(7)}, false},
		"an old one, and one of the same content in time":   {[]listing{{1, at(1), at(1)}, good}, judged{version: 1, asked: at(14), lent: at(14)}, true},
		"hooks of two versions in one answer":               {[]listing{good}, judged{version: 1, asked: at(11), lent: at(11), disagreements: 1}, false},
		"no listing at all":                                 {nil, judged{version: 1, asked: at(11), lent: at(11)}, false},
		"waited for past the age of what was there at last": {[]listing{good}, judged{version: 1, asked: at(15.5), lent: at(20)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newProof(5*time.Second, tc.listings).check(tc.judged); (err == nil) != tc.holds {
				t.Errorf("holds: %v, want %v: %v", err == nil, tc.holds, err)
			}
		})
	}
}

// noting is a source whose successful listings are noted.
type noting struct {
	config.Source

	mu       sync.Mutex
	listings []listing
	failed   int
}

// List implements [config.Source].
func (n *noting) List(ctx context.Context) (config.Listing, error) {
	begun := time.Now()
	l, err := n.Source.List(ctx)
	ended := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed++
		return l, err
	}
	n.listings = append(n.listings, listing{versionListed(l.Decoded()), begun, ended})
	return l, nil
}

// noted are the listings so far.
func (n *noting) noted() ([]listing, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listings[:len(n.listings):len(n.listings)], n.failed
}

// versionListed is the version of everything in a listing; -1 if it holds several.
func versionListed(l config.Listing) int64 {
	version := int64(0)
	for _, o := range l.Objects {
		for _, w := range o.Validating.Webhooks {
			if v := versionOf(w.Name); version == 0 {
				version = v
			} else if v != version {
				return -1
			}
		}
	}
	return version
}

// hookOf is the name of the hooks of a version, and versionOf reads it.
func hookOf(version int64) string { return fmt.Sprintf("n%d.example.com", version) }

func versionOf(hook string) (version int64) {
	if _, err := fmt.Sscanf(hook, "n%d.", &version); err != nil {
		return -1
	}
	return version
}

// lending is a store of which it is noted when it was asked, and when it had lent.
type lending struct{ *store.Store }

// times are of one review, in its context.
type times struct{ asked, lent time.Time }

// timesOf finds them.
type timesOf struct{}

// Acquire implements the dispatcher's Snapshots.
func (l lending) Acquire(ctx context.Context, cluster string, bytes int64) (*match.Snapshot, string, error) {
	noted, _ := ctx.Value(timesOf{}).(*times)
	noted.asked = time.Now()
	snapshot, stale, err := l.Store.Acquire(ctx, cluster, bytes)
	noted.lent = time.Now()
	return snapshot, stale, err
}

// judgedBy reads an answer: each hook has warned with its name.
func judgedBy(warnings []string, digest string, at times) judged {
	j := judged{digest: digest, asked: at.asked, lent: at.lent}
	for i, w := range warnings {
		_, name, _ := strings.Cut(w, "hook=")
		if v := versionOf(name); i == 0 {
			j.version = v
		} else if v != j.version {
			j.disagreements++
		}
	}
	return j
}
