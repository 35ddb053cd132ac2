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
	// outputLifetime is the time for which an output stays in the cache. The API server sends the reinvocation right after the first
	// round, since it calls the entries of its configuration one after the other.
	outputLifetime = 5 * time.Second
	// maxOutputs is the capacity of the cache. The oldest output is evicted first; its reinvocation then calls the hooks again.
	maxOutputs = 8192
)

// reinvocationCache holds digests of the objects that the mutating hooks of this dispatcher returned last. A reinvocation by
// the API server with such an object is answered at once: nothing has changed the object since the hooks allowed it under
// the same configuration, and Kubernetes would not call them either (SEMANTICS C9). It holds no verdicts. Its methods may
// be called concurrently.
type reinvocationCache struct {
	mu    sync.Mutex
	until map[outputDigest]time.Time
	order []outputDigest // the keys of until as a ring, oldest at next
	next  int
}

// outputDigest is a digest of an object and of the request fields that hooks see.
type outputDigest [sha256.Size]byte

func newReinvocationCache() *reinvocationCache {
	return &reinvocationCache{until: make(map[outputDigest]time.Time), order: make([]outputDigest, 0, maxOutputs)}
}

func (c *reinvocationCache) addOutput(x outputDigest, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.until[x]
	c.until[x] = now.Add(outputLifetime)
	switch {
	case known:
	case len(c.order) < maxOutputs:
		c.order = append(c.order, x)
	default:
		delete(c.until, c.order[c.next])
		c.order[c.next] = x
		c.next = (c.next + 1) % maxOutputs
	}
}

// isOutput reports whether x was added less than outputLifetime ago.
func (c *reinvocationCache) isOutput(x outputDigest, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, known := c.until[x]
	return known && now.Before(until)
}

// digestOutput returns the digest of an object that hooks returned for a request under a revision of the configuration. It
// covers every field of the request that hooks see except the uid, which differs between stages.
func digestOutput(revision string, r *admissionv1.AdmissionRequest, object []byte) outputDigest {
	about := make([]byte, 0, usualDigestInput)
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
	_, _ = h.Write(about) // a hash never fails
	for _, b := range bodies {
		_, _ = h.Write(b)
	}
	var x outputDigest
	h.Sum(x[:0])
	return x
}

// usualDigestInput is enough for the fields of most requests without their bodies, in bytes.
const usualDigestInput = 1 << 10

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

// appendTexts appends counts and lengths with the texts, so that different fields never encode to the same bytes.
func appendTexts(to []byte, all ...string) []byte {
	to = appendCount(to, len(all))
	for _, s := range all {
		to = append(appendCount(to, len(s)), s...)
	}
	return to
}

func appendCount(to []byte, n int) []byte { return binary.BigEndian.AppendUint64(to, uint64(n)) }
