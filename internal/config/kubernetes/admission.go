package kubernetes

import (
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// size is the memory and the number of objects of a part of a source.
type size struct {
	objects int
	bytes   int64
}

func (s size) plus(t size) size  { return size{s.objects + t.objects, s.bytes + t.bytes} }
func (s size) minus(t size) size { return size{s.objects - t.objects, s.bytes - t.bytes} }

// over reports whether s is more than t in either way.
func (s size) over(t size) bool { return s.objects > t.objects || s.bytes > t.bytes }

// part is a part of a source, a ConfigMap or a custom resource, that is offered to an admission.
type part struct {
	name    string    // one in the source
	created time.Time // by the API server
	size    size
}

// admission decides which parts of a listing count, within a limit. Nothing that a source has of a part names its author: managed fields are written by
// clients as they like. So the parts of the listing before keep their place: they count while they are no larger than they were, although others write more.
// Then come those that have grown, then those that are new, each by the time of their creation and by name, until one does not fit: no later one
// counts. The decision does not depend on the order in which they are offered. It is pure, and for one goroutine.
type admission struct {
	limit  size
	before map[string]size // the sizes of the parts of the listing before, within limit

	total   size            // of before, with the changes that count so far
	kept    map[string]size // parts that count for good
	waiting candidates      // parts that count unless better ones take their place
	cut     *candidate      // the best candidate that does not count
	refused []refusal
}

// refusal is a part that does not count.
type refusal struct {
	part

	grown bool // it was there before, and smaller
}

// admit begins an admission.
func admit(limit size, before map[string]size) *admission {
	a := &admission{limit: limit, before: before, kept: make(map[string]size, len(before))}
	for _, s := range before {
		a.total = a.total.plus(s)
	}
	return a
}

// offer offers a part, and returns the names of the parts, perhaps its own, that do not count since.
func (a *admission) offer(p part) (refused []string) {
	before, known := a.before[p.name]
	if known && !p.size.over(before) {
		a.total = a.total.plus(p.size).minus(before)
		a.kept[p.name] = p.size
		return nil
	}
	c := &candidate{refusal{p, known}, p.size.minus(before)}
	if a.cut != nil && c.compare(a.cut) > 0 {
		return a.refuse(c)
	}
	heap.Push(&a.waiting, c)
	a.total = a.total.plus(c.cost)
	for a.total.over(a.limit) && len(a.waiting) > 0 {
		worst, _ := heap.Pop(&a.waiting).(*candidate)
		a.total = a.total.minus(worst.cost)
		a.cut = worst
		refused = append(refused, a.refuse(worst)...)
	}
	return refused
}

func (a *admission) refuse(c *candidate) []string {
	a.refused = append(a.refused, c.refusal)
	return []string{c.name}
}

// end returns the sizes of the parts that keep their place in the next listing: of those that count, and of those that have grown too much the size
// that they had. Parts that were not offered have lost it. The refusals are in the order of names.
func (a *admission) end() (sizes map[string]size, refused []refusal) {
	for _, c := range a.waiting {
		a.kept[c.name] = c.size
	}
	for _, r := range a.refused {
		if r.grown {
			a.kept[r.name] = a.before[r.name]
		}
	}
	slices.SortFunc(a.refused, func(a, b refusal) int { return strings.Compare(a.name, b.name) })
	return a.kept, a.refused
}

// candidate is a part that is new or has grown.
type candidate struct {
	refusal

	cost size
}

// compare is less than 0 if c is better than d.
func (c *candidate) compare(d *candidate) int {
	if c.grown != d.grown {
		if c.grown {
			return -1
		}
		return 1
	}
	return cmp.Or(c.created.Compare(d.created), strings.Compare(c.name, d.name))
}

// candidates are a heap whose root is the worst one.
type candidates []*candidate

// Len implements [heap.Interface].
func (h *candidates) Len() int { return len(*h) }

// Less implements [heap.Interface].
func (h *candidates) Less(i, j int) bool { return (*h)[i].compare((*h)[j]) > 0 }

// Swap implements [heap.Interface].
func (h *candidates) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push implements [heap.Interface].
func (h *candidates) Push(x any) {
	if c, ok := x.(*candidate); ok {
		*h = append(*h, c)
	}
}

// Pop implements [heap.Interface].
func (h *candidates) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// shelf has the content of the parts that count.
type shelf[T any] struct {
	admission *admission
	parts     map[string]T // by name
	seen      map[string]bool
}

// put offers a part with its content, and drops the content of parts that do not count since.
func (s *shelf[T]) put(p part, content T) error {
	if s.seen[p.name] {
		return fmt.Errorf("the API server lists %.300q twice", p.name)
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[p.name] = true
	s.parts[p.name] = content
	for _, name := range s.admission.offer(p) {
		delete(s.parts, name)
	}
	return nil
}

// maxNamed bounds the new parts that are named as refused.
const maxNamed = 20

// problemsOf are the problems of parts that do not count. filesOf are the files of a part: the last good objects in them stay in force. New parts past
// the first ones are counted, in a problem of a file that no object has: one without a file would keep all objects of the source as they are.
func problemsOf(refused []refusal, limit size, file string, filesOf func(name string) []string) (problems config.Problems) {
	bound := fmt.Sprintf("there are more than %d objects, or documents of more than %d bytes: remove some", limit.objects, limit.bytes)
	if limit.bytes == 0 {
		bound = fmt.Sprintf("there are more than %d objects: remove some", limit.objects)
	}
	problem := func(file, why string) {
		problems = append(problems, config.Problem{Severity: match.SeverityError, Code: config.CodeLimit, File: file, Message: why + bound})
	}
	named, more := 0, 0
	for i := range refused {
		r := &refused[i]
		switch {
		case r.grown:
			for _, file := range filesOf(r.name) {
				problem(file, "it has grown, and stays as it was, since ")
			}
		case named < maxNamed:
			named++
			for _, file := range filesOf(r.name) {
				problem(file, "it is new, and does not count, since ")
			}
		default:
			more++
		}
	}
	if more > 0 {
		problem(file, fmt.Sprintf("%d more are new, and do not count, since ", more))
	}
	return problems
}

// digestOf adds the parts that do not count to the digest of a listing.
func digestOf(digest io.Writer, refused []refusal) {
	for i := range refused {
		fmt.Fprintf(digest, "refused %s %t\n", refused[i].name, refused[i].grown)
	}
}
