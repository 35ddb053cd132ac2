package directory

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// How long a file must stay unchanged before its content counts: the beginning of a YAML stream is a valid stream too.
const (
	// ReplaceDelay is for a file that was renamed into its place, that is new, and that is gone.
	ReplaceDelay = 100 * time.Millisecond
	// RewriteDelay is for a file that is written in place.
	RewriteDelay = time.Second
	// UnsettledAfter is how long a file may go on changing faster than that before it becomes a finding.
	UnsettledAfter = 10 * time.Second
)

// settling knows which content of each file counts. Its methods may be called concurrently.
type settling struct {
	mu       sync.Mutex
	observed map[string]fileObservation
	content  map[string]fileData // the content that counts
}

// fileObservation is the look of a file, and how long it has lasted.
type fileObservation struct {
	info     os.FileInfo // nil: it is not there
	since    time.Time
	delay    time.Duration // how long it has to look so
	changing time.Time     // since when no look has been seen to last for its delay
	lasted   bool          // this one was
}

// next is the observation after another look.
func (o fileObservation) next(info os.FileInfo, now time.Time) fileObservation {
	if sameFile(o.info, info) {
		o.lasted = o.lasted || o.rest(now) == 0
		return o
	}
	delay := ReplaceDelay
	if o.info != nil && info != nil && os.SameFile(o.info, info) {
		delay = RewriteDelay
	}
	next := fileObservation{info: info, since: now, delay: delay, changing: now}
	if !o.since.IsZero() && !o.lasted {
		next.changing = o.changing
	}
	return next
}

// unsettled reports whether the file has been changing for too long to be still in one writing.
func (o fileObservation) unsettled(now time.Time) bool {
	return o.rest(now) > 0 && now.Sub(o.changing) >= UnsettledAfter
}

// rest is how long the file has to look so yet; 0 when it has for long enough.
func (o fileObservation) rest(now time.Time) time.Duration {
	return max(0, o.since.Add(o.delay).Sub(now))
}

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// settle takes the files just read, and returns the content that counts, in the order of paths. A file that has changed lately
// counts with its earlier content, if it had any. again is the time until the first of these may count; 0 when there are none.
// unsettled are the paths of the files that go on changing, in their order.
func (s *settling) settle(read []fileData, now time.Time) (counting []fileData, again time.Duration, unsettled []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := maps.Clone(s.observed)
	for _, f := range read {
		delete(gone, f.path)
		rest := s.rest(f, now)
		if rest == 0 {
			s.content[f.path] = f
		} else if s.observed[f.path].unsettled(now) {
			unsettled = append(unsettled, f.path)
		}
		again = config.Sooner(again, rest)
	}
	for path := range gone {
		rest := s.rest(fileData{path: path, whole: s.content[path].whole}, now)
		if rest == 0 {
			delete(s.content, path)
			delete(s.observed, path)
		}
		again = config.Sooner(again, rest)
	}
	counting = slices.SortedFunc(maps.Values(s.content), func(a, b fileData) int { return strings.Compare(a.path, b.path) })
	return counting, again, unsettled
}

// rest is how long a file has to look as it does yet before it counts so; 0 when it does.
func (s *settling) rest(f fileData, now time.Time) time.Duration {
	seen := s.observed[f.path].next(f.info, now)
	s.observed[f.path] = seen
	known, ok := s.content[f.path]
	if f.whole || ok && f.info != nil && known.sum == f.sum {
		return 0
	}
	return seen.rest(now)
}
