package pool

import (
	"cmp"
	"hash/maphash"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Offer is a hook as hosts name it.
type Offer struct {
	// Name is the name of the webhook, and Stage the stage in which it is called.
	Name  string
	Stage admissionv1.Stage
}

// OffersOf are the hooks that a host offers, in the order of its Hello.
func OffersOf(hello *hostv1.Hello) []Offer {
	out := make([]Offer, len(hello.GetHooks()))
	for i, o := range hello.GetHooks() {
		out[i] = Offer{o.GetName(), o.GetStage()}
	}
	return out
}

// Digest stands for an offer, or for the name of a cluster. Names in Hello may be long and many, and most names of a bad host
// are in no configuration: a session keeps digests, and names come from the configuration. That two names share one is as
// likely as to guess 64 bits.
type Digest uint64

// Digests makes digests, which mean nothing elsewhere.
type Digests struct{ seed maphash.Seed }

// NewDigests makes digests with a random seed.
func NewDigests() Digests { return Digests{maphash.MakeSeed()} }

// Offer is the digest of an offer.
func (d Digests) Offer(o Offer) Digest { return Digest(maphash.Comparable(d.seed, o)) }

func (d Digests) cluster(name string) Digest { return Digest(maphash.String(d.seed, name)) }

// Offered is a hook that a host offers.
type Offered struct {
	// Digest is the digest of the offer.
	Digest Digest
	// Speculates is whether the host agrees to calls that may be discarded.
	Speculates bool
}

// HelloDigest is the part of a Hello that a session keeps: 24 kB at most.
type HelloDigest struct {
	clusters []Digest // sorted; none means all
	// Offers are sorted by digest; an offer that the host made twice is there twice, the first one first.
	Offers []Offered
	Digests
}

// ofHello makes the digest of a Hello. Of two offers of one hook the first one counts.
func (d Digests) ofHello(hello *hostv1.Hello) (w HelloDigest) {
	for _, name := range hello.GetClusters() {
		w.clusters = append(w.clusters, d.cluster(name))
	}
	slices.Sort(w.clusters)
	for i, o := range OffersOf(hello) {
		w.Offers = append(w.Offers, Offered{d.Offer(o), hello.GetHooks()[i].GetSpeculate()})
	}
	slices.SortStableFunc(w.Offers, func(a, b Offered) int { return cmp.Compare(a.Digest, b.Digest) })
	return HelloDigest{clusters: slices.Clip(w.clusters), Offers: slices.Clip(w.Offers), Digests: d}
}

func (w *HelloDigest) names(cluster string) bool {
	_, found := slices.BinarySearch(w.clusters, w.cluster(cluster))
	return found
}

// Among are the offers that the host makes, by name.
func (w *HelloDigest) Among(offers map[Digest]Offer) (out []Offer) {
	for i, x := range w.Offers {
		o, ok := offers[x.Digest]
		if ok && (i == 0 || w.Offers[i-1].Digest != x.Digest) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Offer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stage, b.Stage)) })
	return out
}

// OffersAny reports whether the host makes any of the offers. Of few offers it costs next to nothing: all sessions are asked when
// a hook changes.
func (w *HelloDigest) OffersAny(offers map[Digest]Offer) bool {
	if len(offers) > len(w.Offers) {
		return slices.ContainsFunc(w.Offers, func(x Offered) bool { _, ok := offers[x.Digest]; return ok })
	}
	for d := range offers {
		if _, found := slices.BinarySearchFunc(w.Offers, d, func(x Offered, d Digest) int { return cmp.Compare(x.Digest, d) }); found {
			return true
		}
	}
	return false
}
