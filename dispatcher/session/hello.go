package session

import (
	"cmp"
	"hash/maphash"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// offer is how hosts name a hook.
type offer struct {
	name  string
	stage int32
}

func (o offer) hostStage() admissionv1.Stage { return admissionv1.Stage(o.stage) }

func offersOf(hello *hostv1.Hello) []offer {
	out := make([]offer, len(hello.GetHooks()))
	for i, o := range hello.GetHooks() {
		out[i] = offer{o.GetName(), int32(o.GetStage())}
	}
	return out
}

// digest stands for an offer, or for the name of a cluster. Names in Hello may be long and many, and most of a bad host
// mean nothing to anybody: a session keeps digests, and names come from the configuration. That two names share one is as
// likely as to guess 64 bits.
type digest uint64

// digests makes digests, which mean nothing elsewhere.
type digests struct{ seed maphash.Seed }

func newDigests() digests { return digests{maphash.MakeSeed()} }

func (d digests) offer(o offer) digest { return digest(maphash.Comparable(d.seed, o)) }

func (d digests) cluster(name string) digest { return digest(maphash.String(d.seed, name)) }

// offered is a hook that a host offers.
type offered struct {
	digest     digest
	speculates bool // it agrees to calls that may be discarded
}

// helloDigest is what a session keeps of what its host asks for: 24 kB at most.
type helloDigest struct {
	clusters []digest  // sorted; none means all
	offers   []offered // sorted
	digests
}

// ofHello is what a host asks for. Of two offers of one hook the first one counts.
func (d digests) ofHello(hello *hostv1.Hello) (w helloDigest) {
	for _, name := range hello.GetClusters() {
		w.clusters = append(w.clusters, d.cluster(name))
	}
	slices.Sort(w.clusters)
	for i, o := range offersOf(hello) {
		w.offers = append(w.offers, offered{d.offer(o), hello.GetHooks()[i].GetSpeculate()})
	}
	slices.SortStableFunc(w.offers, func(a, b offered) int { return cmp.Compare(a.digest, b.digest) })
	return helloDigest{clusters: slices.Clip(w.clusters), offers: slices.Clip(w.offers), digests: d}
}

func (w *helloDigest) names(cluster string) bool {
	_, found := slices.BinarySearch(w.clusters, w.cluster(cluster))
	return found
}

// among are those of the offers that the host makes, by name.
func (w *helloDigest) among(offers map[digest]offer) (out []offer) {
	for i, x := range w.offers {
		o, ok := offers[x.digest]
		if ok && (i == 0 || w.offers[i-1].digest != x.digest) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b offer) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.stage, b.stage)) })
	return out
}

// any reports whether the host makes any of the offers. Of few offers it costs next to nothing: all sessions are asked when
// a hook changes.
func (w *helloDigest) any(offers map[digest]offer) bool {
	if len(offers) > len(w.offers) {
		return slices.ContainsFunc(w.offers, func(x offered) bool { _, ok := offers[x.digest]; return ok })
	}
	for d := range offers {
		if _, found := slices.BinarySearchFunc(w.offers, d, func(x offered, d digest) int { return cmp.Compare(x.digest, d) }); found {
			return true
		}
	}
	return false
}
