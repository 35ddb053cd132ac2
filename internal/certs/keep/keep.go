// Package keep makes the certificates of a mesh, renews them before they end, and replaces their authority with overlap.
//
// Run is one idempotent pass over Secrets: the Secret of the authority, and the Secrets of servers and clients ("leaves"). It reads
// all Secrets, decides on one write, does it, and begins again until nothing is left to do. So each decision is made from the stored
// content, and a pass may end anywhere. The next pass goes on there. Writes are conditional on the versions that were read.
//
// The decisions (decide.go) are a pure function of the Secrets and the time. At each moment every leaf that a peer may still hold
// is trusted by every bundle that a peer may still hold, as long as peers take a changed Secret within the overlap.
//
// The package does not authorize, has no goroutine and no state besides the Secrets. A Config may be used concurrently.
package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	// DefaultOverlap is the time between two steps of the replacement of an authority: a week, in which the operators of other
	// clusters bring the new bundle into their entries.
	DefaultOverlap = 7 * 24 * time.Hour
	// MinOverlap is the least overlap: ten minutes, for the two that the kubelet takes to bring a Secret to a Pod, the ten seconds after which
	// dispatchers write entries that have another bundle than their file, and attempts of both that fail.
	MinOverlap = 10 * time.Minute
	// MinLeafTTL is the shortest life of a certificate: half an hour, so that the last third of it is longer than the kubelet
	// takes to bring a Secret to a Pod.
	MinLeafTTL = 30 * time.Minute
	// writesPerSecret bounds the writes of one pass, per Secret: a pass that needs more would never end.
	writesPerSecret = 8
)

// The keys of Secrets, and the names of files.
const (
	// CertKey is the certificate, of a leaf, or of the authority that issues.
	CertKey = "tls.crt"
	// KeyKey is its private key.
	KeyKey = "tls.key"
	// BundleKey is the bundle of authorities that every peer trusts.
	BundleKey = "ca.crt"
	// ExtraKey, in the Secret of the authority, are further authorities of the bundle. Keep never removes them.
	ExtraKey = "extra.crt"
	// RotateKey, in the Secret of the authority, with any content, has the next pass begin to replace the authority.
	RotateKey = "rotate"
	// nextCertKey and nextKeyKey are the authority that will issue.
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
	// settledKey is the time since which all leaves fit the bundle and the issuer, in RFC 3339, while an authority is replaced.
	settledKey = "settled"
)

// ErrConflict is the error of a write to a Secret that has changed since it was read, or was made meanwhile.
var ErrConflict = errors.New("changed by another writer since it was read")

// Secret is a set of files with a name.
type Secret struct {
	// Name is unique in its Store.
	Name string
	// Files are the contents by key. Nil for a Secret that does not exist.
	Files map[string][]byte
	// Version changes with each write. It belongs to the Store; empty for a Secret that does not exist.
	Version string
}

// Store holds Secrets.
type Store interface {
	// Read returns a Secret; one without files and version if it does not exist.
	Read(ctx context.Context, name string) (Secret, error)
	// Write replaces the files of a Secret, or makes it if its version is empty. It returns ErrConflict if the stored version is
	// another one. The store keeps no reference to the files.
	Write(ctx context.Context, secret Secret) error
}

// Leaf is a certificate that is kept.
type Leaf struct {
	// Secret is the name of its Secret.
	Secret string
	// Identity of a client; empty for a server.
	Identity string
	// DNSNames and IPs of a server.
	DNSNames []string
	IPs      []net.IP
}

// Config says which certificates there are.
type Config struct {
	// Authority is the name of the authority's Secret.
	Authority string
	// Leaves have distinct Secrets. Every pass over an authority has to name all of them.
	Leaves []Leaf
	// LeafTTL is how long a certificate holds; 0 is certs.DefaultLeafTTL, and MinLeafTTL the least. It is renewed when two thirds of
	// its life are over.
	LeafTTL time.Duration
	// AuthorityTTL is the same for the authority; 0 is certs.DefaultAuthorityTTL.
	AuthorityTTL time.Duration
	// Overlap is the least time between two steps of the replacement of an authority: everybody trusts both, leaves come from the
	// new one, everybody trusts the new one. 0 is DefaultOverlap, and MinOverlap the least; at most a sixth of AuthorityTTL, since two of them have to fit
	// into its last third.
	Overlap time.Duration
	// Entries returns the caBundle of each entry by the name of the entry. A new authority issues once each caBundle with another authority
	// of the bundle has the new one too. It is called while an authority is being replaced; an error ends the pass. Nil for none.
	Entries func(ctx context.Context) (map[string][]byte, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger receives each write and why; nil logs nothing.
	Logger *slog.Logger
}

// Result is the result of a pass.
type Result struct {
	// Writes are sentences, one for each write.
	Writes []string
	// Waiting names the time for which the replacement of the authority waits; empty when none is under way.
	Waiting string
}

// defaults fills and checks a configuration.
func (c *Config) defaults() error {
	c.LeafTTL = cmp.Or(c.LeafTTL, certs.DefaultLeafTTL)
	c.AuthorityTTL = cmp.Or(c.AuthorityTTL, certs.DefaultAuthorityTTL)
	c.Overlap = cmp.Or(c.Overlap, DefaultOverlap)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.LeafTTL < MinLeafTTL:
		return fmt.Errorf("a certificate of %s is too short: want %s at least", c.LeafTTL, MinLeafTTL)
	case c.AuthorityTTL < 2*c.LeafTTL:
		return fmt.Errorf("an authority of %s is too short for certificates of %s: want twice that at least", c.AuthorityTTL, c.LeafTTL)
	case c.Overlap < MinOverlap:
		return fmt.Errorf("an overlap of %s is too short for every peer to take a changed Secret, and for entries to be written: want %s at least",
			c.Overlap, MinOverlap)
	case c.Overlap > c.AuthorityTTL/6:
		return fmt.Errorf("an overlap of %s does not fit twice into the last third of an authority of %s: want %s at most",
			c.Overlap, c.AuthorityTTL, c.AuthorityTTL/6)
	case len(c.Leaves) == 0:
		return errors.New("there is no certificate to keep: name servers and clients")
	}
	return c.checkNames()
}

func (c *Config) checkNames() error {
	seen := []string{c.Authority}
	for _, leaf := range c.Leaves {
		if slices.Contains(seen, leaf.Secret) {
			return fmt.Errorf("%q is named twice: the authority and each certificate have a Secret of their own", leaf.Secret)
		}
		seen = append(seen, leaf.Secret)
		if (leaf.Identity == "") == (len(leaf.DNSNames)+len(leaf.IPs) == 0) {
			return fmt.Errorf("%q: a server has names or addresses, a client has an identity, and a certificate is of one of them", leaf.Secret)
		}
	}
	if slices.Contains(seen, "") {
		return errors.New("a Secret has no name")
	}
	return nil
}

// Run does everything that is due. The result lists the writes, also beside an error. It is an error if a certificate has
// five sixths of its life behind it and this pass could not renew it.
func Run(ctx context.Context, store Store, config Config) (Result, error) {
	var result Result
	if err := config.defaults(); err != nil {
		return result, err
	}
	for range writesPerSecret * (len(config.Leaves) + 1) {
		s, err := read(ctx, store, &config)
		if err != nil {
			return result, err
		}
		now := config.Now()
		next := decide(s, &config, now)
		result.Waiting = next.waiting
		if next.kind == nothing {
			return result, s.ending(now)
		}
		secret, err := s.perform(next, &config, now)
		if err != nil {
			return result, err
		}
		if err := store.Write(ctx, secret); err != nil {
			return result, fmt.Errorf("%s: %w", secret.Name, err)
		}
		result.Writes = append(result.Writes, secret.Name+": "+next.why)
		config.Logger.Info("certificate Secret written", slog.String("secret", secret.Name), slog.String("why", next.why))
	}
	return result, errors.New("the Secrets do not come to rest: another program writes them too; end it, and run this again")
}
