package dispatcher

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// outputLife is how long an output of the mutating hooks is known again. The API server comes back with it at once: the
	// entries of its configuration are called one after the other.
	outputLife = 5 * time.Second
	// maxOutputs bounds how many outputs are known at a time; the oldest is forgotten first. One that is forgotten costs
	// the hooks one more call.
	maxOutputs = 8192
)

// outputs are the objects that the mutating hooks of this dispatcher have just put out. A reinvocation of an object that
// nobody has changed since has nothing to ask: Kubernetes would not ask either (SEMANTICS C9). It is about calls alone,
// and holds no verdict: those who were asked have let the very same object pass, under the same configuration.
type outputs struct {
	mu    sync.Mutex
	until map[output]time.Time
	order []output // a ring of those in until, oldest at next
	next  int
}

// output is the digest of an object and of what the hooks knew about the request.
type output [sha256.Size]byte

func newOutputs() *outputs {
	return &outputs{until: make(map[output]time.Time), order: make([]output, 0, maxOutputs)}
}

// remember takes note of an output.
func (o *outputs) remember(x output, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.until[x]
	o.until[x] = now.Add(outputLife)
	switch {
	case known:
	case len(o.order) < maxOutputs:
		o.order = append(o.order, x)
	default:
		delete(o.until, o.order[o.next])
		o.order[o.next] = x
		o.next = (o.next + 1) % maxOutputs
	}
}

// recall reports whether x has just been put out.
func (o *outputs) recall(x output, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	until, known := o.until[x]
	return known && now.Before(until)
}

// outputOf is the digest of an object that hooks put out for a request, under a configuration. Everything of the request
// that hooks see counts, but its uid, which is another for each stage.
func outputOf(revision string, r *admissionv1.AdmissionRequest, object []byte) output {
	h := sha256.New()
	text(h, revision, r.GetCluster(), r.GetSubResource(), r.GetName(), r.GetNamespace(), r.GetOperation())
	for _, k := range []*admissionv1.GroupVersionKind{r.GetKind(), r.GetRequestKind()} {
		text(h, k.GetGroup(), k.GetVersion(), k.GetKind())
	}
	for _, k := range []*admissionv1.GroupVersionResource{r.GetResource(), r.GetRequestResource()} {
		text(h, k.GetGroup(), k.GetVersion(), k.GetResource())
	}
	user := r.GetUserInfo()
	text(h, user.GetUsername(), user.GetUid())
	text(h, user.GetGroups()...)
	for _, key := range slices.Sorted(maps.Keys(user.GetExtra())) {
		text(h, key)
		text(h, user.GetExtra()[key].GetItems()...)
	}
	dryRun := byte(0)
	if r.GetDryRun() {
		dryRun = 1
	}
	piece(h, []byte{dryRun})
	piece(h, r.GetOldObject().GetRaw())
	piece(h, r.GetOptions().GetRaw())
	piece(h, object)
	return output(h.Sum(nil))
}

// text and piece write with lengths, so that nothing of one field can pass for a part of another.
func text(h hash.Hash, all ...string) {
	count(h, len(all))
	for _, s := range all {
		count(h, len(s))
		_, _ = io.WriteString(h, s) // a hash takes everything
	}
}

func piece(h hash.Hash, b []byte) {
	count(h, len(b))
	_, _ = h.Write(b)
}

func count(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, _ = h.Write(b[:])
}
