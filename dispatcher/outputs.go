package dispatcher

import (
	"crypto/sha256"
	"encoding/binary"
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
	about := make([]byte, 0, usualAbout)
	about = appendTexts(about, revision, r.GetCluster(), r.GetSubResource(), r.GetName(), r.GetNamespace(), r.GetOperation())
	for _, k := range [...]*admissionv1.GroupVersionKind{r.GetKind(), r.GetRequestKind()} {
		about = appendTexts(about, k.GetGroup(), k.GetVersion(), k.GetKind())
	}
	for _, k := range [...]*admissionv1.GroupVersionResource{r.GetResource(), r.GetRequestResource()} {
		about = appendTexts(about, k.GetGroup(), k.GetVersion(), k.GetResource())
	}
	about = appendUser(about, r.GetUserInfo())
	dryRun := 0
	if r.GetDryRun() {
		dryRun = 1
	}
	about = appendCount(about, dryRun)
	bodies := [...][]byte{r.GetOldObject().GetRaw(), r.GetOptions().GetRaw(), object}
	for _, b := range bodies {
		about = appendCount(about, len(b))
	}
	h := sha256.New()
	_, _ = h.Write(about) // a hash takes everything
	for _, b := range bodies {
		_, _ = h.Write(b)
	}
	var x output
	h.Sum(x[:0])
	return x
}

// usualAbout is the room for what most requests say beside their bodies, in bytes.
const usualAbout = 1 << 10

func appendUser(to []byte, user *admissionv1.UserInfo) []byte {
	to = appendTexts(to, user.GetUsername(), user.GetUid())
	to = appendTexts(to, user.GetGroups()...)
	extra := user.GetExtra()
	to = appendCount(to, len(extra))
	if len(extra) == 0 {
		return to
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		to = appendTexts(to, key)
		to = appendTexts(to, extra[key].GetItems()...)
	}
	return to
}

// appendTexts writes with numbers and lengths, so that nothing of one field can pass for a part of another.
func appendTexts(to []byte, all ...string) []byte {
	to = appendCount(to, len(all))
	for _, s := range all {
		to = append(appendCount(to, len(s)), s...)
	}
	return to
}

func appendCount(to []byte, n int) []byte { return binary.BigEndian.AppendUint64(to, uint64(n)) }
