package keep_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
)

const day = 24 * time.Hour

// memory is a Store that remembers each version, and may fail.
type memory struct {
	secrets map[string]keep.Secret
	history map[string][]written
	now     func() time.Time
	fails   func() bool       // whether a write fails
	between func(keep.Secret) // runs before a write
}

type written struct {
	at     time.Time
	secret keep.Secret
}

var errWrite = errors.New("the store is away")

func (m *memory) Read(_ context.Context, name string) (keep.Secret, error) {
	secret, exists := m.secrets[name]
	if !exists {
		return keep.Secret{Name: name}, nil
	}
	secret.Files = maps.Clone(secret.Files)
	return secret, nil
}

func (m *memory) Write(_ context.Context, secret keep.Secret) error {
	if m.between != nil {
		m.between(secret)
	}
	if m.fails != nil && m.fails() {
		return errWrite
	}
	if m.secrets[secret.Name].Version != secret.Version {
		return keep.ErrConflict
	}
	m.put(secret)
	return nil
}

// put writes without a condition.
func (m *memory) put(secret keep.Secret) {
	secret.Files = maps.Clone(secret.Files)
	secret.Version = fmt.Sprint(len(m.history[secret.Name]) + 1)
	m.secrets[secret.Name] = secret
	m.history[secret.Name] = append(m.history[secret.Name], written{m.now(), secret})
}

// world is a store with a clock that tests move.
type world struct {
	*memory
	t      *testing.T
	time   time.Time
	config keep.Config
	// trusted are pairs of contents that have been checked, and until when.
	trusted map[[2]peer]time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, trusted: map[[2]peer]time.Time{}, time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	now := func() time.Time { return w.time }
	w.memory = &memory{secrets: map[string]keep.Secret{}, history: map[string][]written{}, now: now}
	w.config = keep.Config{
		Authority: "ca", Now: now, LeafTTL: 90 * day, AuthorityTTL: 360 * day, Overlap: 7 * day,
		Leaves: []keep.Leaf{
			{Secret: "server", DNSNames: []string{"mesh.example.com"}},
			{Secret: "host", Identity: "spiffe://mesh/host"},
		},
	}
	return w
}

func (w *world) run() keep.Result {
	w.t.Helper()
	result, err := keep.Run(w.t.Context(), w, w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) after(d time.Duration) keep.Result {
	w.t.Helper()
	w.time = w.time.Add(d)
	return w.run()
}

// leaf is the certificate of a Secret.
func leaf(t *testing.T, secret keep.Secret) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Files[keep.CertKey], secret.Files[keep.KeyKey])
	if err != nil {
		t.Fatalf("%s: %v", secret.Name, err)
	}
	return pair.Leaf
}

func (w *world) leaf(name string) *x509.Certificate {
	w.t.Helper()
	return leaf(w.t, w.secrets[name])
}

// trusts is an error unless the bundle of one Secret vouches for the certificate of another one.
func trusts(t *testing.T, bundle, cert keep.Secret, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	all, err := certs.ParseBundle(bundle.Files[keep.BundleKey])
	if err != nil {
		return err
	}
	for _, authority := range all {
		pool.AddCert(authority)
	}
	_, err = leaf(t, cert).Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func (w *world) wantTrust() {
	w.t.Helper()
	for _, bundle := range w.secrets {
		for _, l := range w.config.Leaves {
			if err := trusts(w.t, bundle, w.secrets[l.Secret], w.time); err != nil {
				w.t.Errorf("%s does not trust %s: %v", bundle.Name, l.Secret, err)
			}
		}
	}
}

// authorities is the number of certificates in the bundle.
func (w *world) authorities() int {
	w.t.Helper()
	all, err := certs.ParseBundle(w.secrets["ca"].Files[keep.BundleKey])
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

func wantWrites(t *testing.T, result keep.Result, want ...string) {
	t.Helper()
	if len(result.Writes) != len(want) {
		t.Fatalf("writes: %q, want %q", result.Writes, want)
	}
	for i, text := range want {
		if !strings.Contains(result.Writes[i], text) {
			t.Errorf("write %d: %q, want %q", i, result.Writes[i], text)
		}
	}
}

func TestTheFirstRunMakesAllAndTheSecondNothing(t *testing.T) {
	w := newWorld(t)
	wantWrites(t, w.run(), "ca: made an authority", "server: issued", "host: issued")
	w.wantTrust()
	wantWrites(t, w.run())
	if got := w.leaf("server"); got.DNSNames[0] != "mesh.example.com" || got.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("the server has %v %v", got.DNSNames, got.ExtKeyUsage)
	}
	if got := w.leaf("host"); got.URIs[0].String() != "spiffe://mesh/host" || got.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("the host has %v %v", got.URIs, got.ExtKeyUsage)
	}
}

func TestACertificateIsRenewedWhenTwoThirdsOfItsLifeAreOver(t *testing.T) {
	w := newWorld(t)
	w.run()
	wantWrites(t, w.after(60*day-10*time.Minute))
	wantWrites(t, w.after(10*time.Minute), "server: renewed", "host: renewed")
	w.wantTrust()
	if got := w.leaf("server").NotAfter; !got.Equal(w.time.Add(90 * day)) {
		t.Errorf("it ends at %s", got)
	}
}

func TestACertificateWithOtherNamesIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.config.Leaves[0].DNSNames = []string{"mesh.example.com", "mesh.example.org"}
	wantWrites(t, w.run(), "server: issued a certificate with other names")
	w.config.Leaves[1].Identity = "spiffe://mesh/other"
	wantWrites(t, w.run(), "host: issued a certificate with other names")
}

func TestALeafThatIsDamagedOrGoneIsReplaced(t *testing.T) {
	for name, damage := range map[string]map[string][]byte{
		"gone": nil, "empty": {}, "no PEM": {keep.CertKey: []byte("x"), keep.KeyKey: []byte("y"), keep.BundleKey: []byte("z")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run()
			w.put(keep.Secret{Name: "host", Files: damage})
			wantWrites(t, w.run(), "host: issued")
			w.wantTrust()
		})
	}
}

// TestTheAuthorityIsReplacedInSteps: both are trusted, then the new one issues, then the old one is trusted no more.
func TestTheAuthorityIsReplacedInSteps(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.after(80 * day)
	w.after(80 * day)
	old := w.leaf("server")
	begin := w.after(80 * day)
	wantWrites(t, begin, "server: renewed", "host: renewed", "ca: made a new authority", "server: changed the trusted", "host: changed the trusted", "ca: all certificates fit")
	if !strings.Contains(begin.Waiting, "2030-09-05T00:00:00Z") || w.authorities() != 2 {
		t.Errorf("waiting %q with %d authorities", begin.Waiting, w.authorities())
	}
	wantWrites(t, w.after(7*day-time.Second))
	wantWrites(t, w.after(time.Second), "ca: the new authority issues", "server: issued a certificate by the authority of now", "host: issued", "ca: all certificates fit")
	w.wantTrust()
	if string(w.leaf("server").AuthorityKeyId) == string(old.AuthorityKeyId) || w.authorities() != 2 {
		t.Error("the leaf is of the old authority, or the bundle lacks one")
	}
	wantWrites(t, w.after(7*day), "ca: the old authority is no longer", "server: changed the trusted", "host: changed the trusted")
	wantWrites(t, w.run())
	w.wantTrust()
	if w.authorities() != 1 {
		t.Errorf("the bundle has %d authorities", w.authorities())
	}
}

func TestAnAuthorityIsReplacedOnRequest(t *testing.T) {
	w := newWorld(t)
	w.run()
	ca := w.secrets["ca"]
	ca.Files[keep.RotateKey] = []byte("now")
	w.put(ca)
	wantWrites(t, w.run(), "as asked for", "server: changed", "host: changed", "ca: all")
	wantWrites(t, w.run())
	w.after(7 * day)
	w.after(7 * day)
	if w.authorities() != 1 {
		t.Errorf("the bundle has %d authorities", w.authorities())
	}
	wantWrites(t, w.run())
}

// TestTheNewAuthorityDoesNotIssueBeforeTheEntriesHaveIt: entries that have the old one count, entries of another mesh do not.
func TestTheNewAuthorityDoesNotIssueBeforeTheEntriesHaveIt(t *testing.T) {
	w := newWorld(t)
	w.run()
	other, err := certs.NewAuthorityAt(w.time, "other", 0)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string][]byte{
		"a": w.secrets["ca"].Files[keep.BundleKey], "other": other.CA().CertPEM, "damaged": []byte("x"), "none": nil,
	}
	var away error
	w.config.Entries = func(context.Context) (map[string][]byte, error) { return entries, away }
	w.after(240 * day)
	result := w.after(30 * day)
	wantWrites(t, result)
	if !strings.Contains(result.Waiting, "before a has it") {
		t.Errorf("waiting %q", result.Waiting)
	}
	away = errWrite
	if _, err := keep.Run(t.Context(), w, w.config); !errors.Is(err, errWrite) {
		t.Errorf("error %v", err)
	}
	away, entries["a"] = nil, w.secrets["ca"].Files[keep.BundleKey]
	wantWrites(t, w.run(), "ca: the new authority issues", "server:", "host:", "ca:")
	away = errWrite
	w.after(7 * day)
}

// TestALeafThatLosesTheNewAuthorityStopsTheClock: the overlap begins again.
func TestALeafThatLosesTheNewAuthorityStopsTheClock(t *testing.T) {
	w := newWorld(t)
	w.run()
	before := w.secrets["host"]
	w.after(240 * day)
	w.put(before)
	wantWrites(t, w.after(7*day), "ca: the overlap begins again", "host:", "ca: all certificates fit")
	wantWrites(t, w.after(7*day), "ca: the new authority issues", "server:", "host:", "ca:")
}

// TestCertificatesOfAnotherAuthorityAreTakenOver: those that an operator made are in use until peers know the new authority.
func TestCertificatesOfAnotherAuthorityAreTakenOver(t *testing.T) {
	w := newWorld(t)
	hand, err := certs.NewAuthorityAt(w.time, "by hand", 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]certs.Spec{
		"server": {DNSNames: []string{"old.example.com"}, Server: true, TTL: 30 * day, Now: w.time},
		"host":   {Identity: "spiffe://mesh/host", Client: true, TTL: 30 * day, Now: w.time},
	} {
		pair, err := hand.Issue(spec)
		if err != nil {
			t.Fatal(err)
		}
		w.put(keep.Secret{Name: name, Files: map[string][]byte{keep.CertKey: pair.CertPEM, keep.KeyKey: pair.KeyPEM, keep.BundleKey: hand.CA().CertPEM}})
	}
	wantWrites(t, w.run(), "ca: made a new authority beside", "server: changed", "host: changed", "ca: all")
	w.wantTrust()
	wantWrites(t, w.after(7*day), "ca: the new authority issues", "server: issued a certificate with other names", "host: issued")
	w.wantTrust()
	w.after(20 * day)
	if w.authorities() != 2 {
		t.Errorf("the bundle has %d authorities: certificates of the one by hand may be in use elsewhere", w.authorities())
	}
	ca := w.secrets["ca"]
	delete(ca.Files, keep.ExtraKey)
	w.put(ca)
	w.run()
	wantWrites(t, w.after(7*day), "ca: the old authority is no longer", "server:", "host:")
}

// TestAnAuthorityThatHasEndedIsReplacedAtOnce: nothing works that waiting would protect.
func TestAnAuthorityThatHasEndedIsReplacedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.run()
	wantWrites(t, w.after(400*day), "ca: made a new", "server: replaced a certificate that had ended", "host: replaced", "ca: all", "ca: the new authority issues", "ca: all")
	w.wantTrust()
	w.after(7 * day)
	if w.authorities() != 1 {
		t.Errorf("the bundle has %d authorities", w.authorities())
	}
	w.wantTrust()
}

func TestAnAuthorityThatCannotBeReadIsNeverReplaced(t *testing.T) {
	for key, content := range map[string]string{keep.CertKey: "x", keep.KeyKey: "", keep.BundleKey: "x", keep.ExtraKey: "x", "next.crt": "x", "settled": "soon"} {
		w := newWorld(t)
		w.run()
		ca := w.secrets["ca"]
		ca.Files[key] = []byte(content)
		w.put(ca)
		if _, err := keep.Run(t.Context(), w, w.config); err == nil || !strings.Contains(err.Error(), "ca: "+key) && !strings.Contains(err.Error(), "remove both") {
			t.Errorf("%s = %q: error %v", key, content, err)
		}
	}
}

func TestARunThatCannotWriteSaysWhat(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.time = w.time.Add(80 * day)
	w.fails = func() bool { return true }
	if _, err := keep.Run(t.Context(), w, w.config); !errors.Is(err, errWrite) || !strings.Contains(err.Error(), "server: ") {
		t.Errorf("error %v", err)
	}
}

// TestACertificateThatEndsAndIsNotRenewedIsAnError: it waits for the overlap, and that is too long for it.
func TestACertificateThatEndsAndIsNotRenewedIsAnError(t *testing.T) {
	w := newWorld(t)
	hand, err := certs.NewAuthorityAt(w.time, "by hand", 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := hand.Issue(certs.Spec{Identity: "spiffe://mesh/host", Client: true, TTL: 6 * day, Now: w.time})
	if err != nil {
		t.Fatal(err)
	}
	w.put(keep.Secret{Name: "host", Files: map[string][]byte{keep.CertKey: pair.CertPEM, keep.KeyKey: pair.KeyPEM, keep.BundleKey: hand.CA().CertPEM}})
	w.run()
	w.time = w.time.Add(5 * day)
	if _, err := keep.Run(t.Context(), w, w.config); err == nil || !strings.Contains(err.Error(), "the certificate of host ends at 2030-01-07T00:00:00Z") {
		t.Errorf("error %v", err)
	}
	w.after(day)
	w.wantTrust()
}

func TestTwoRunsDoNotMix(t *testing.T) {
	w := newWorld(t)
	other := w.config
	w.between = func(keep.Secret) {
		w.between = nil
		if _, err := keep.Run(t.Context(), w, other); err != nil {
			t.Error(err)
		}
	}
	if _, err := keep.Run(t.Context(), w, w.config); !errors.Is(err, keep.ErrConflict) {
		t.Errorf("error %v, want a conflict", err)
	}
	w.wantTrust()
	wantWrites(t, w.run())
}

func TestARunThatNeverComesToRestEnds(t *testing.T) {
	w := newWorld(t)
	w.run()
	host := w.secrets["host"]
	host.Files = nil
	w.between = func(s keep.Secret) {
		if s.Name == "server" {
			w.put(host)
		} else {
			w.put(keep.Secret{Name: "server"})
		}
	}
	w.put(host)
	if _, err := keep.Run(t.Context(), w, w.config); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("error %v", err)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*keep.Config){
		"too short: want 30m":       func(c *keep.Config) { c.LeafTTL = keep.MinLeafTTL - 1 },
		"want twice that":           func(c *keep.Config) { c.AuthorityTTL = 2*c.LeafTTL - 1; c.Overlap = keep.MinOverlap },
		"too short for every peer":  func(c *keep.Config) { c.Overlap = keep.MinOverlap - 1 },
		"want 1440h0m0s at most":    func(c *keep.Config) { c.Overlap = c.AuthorityTTL/6 + 1 },
		"no certificate to keep":    func(c *keep.Config) { c.Leaves = nil },
		`"ca" is named twice`:       func(c *keep.Config) { c.Leaves[0].Secret = "ca" },
		`"host" is named twice`:     func(c *keep.Config) { c.Leaves[0].Secret = "host" },
		"has no name":               func(c *keep.Config) { c.Leaves[0].Secret = "" },
		`"server": a server has`:    func(c *keep.Config) { c.Leaves[0].DNSNames = nil },
		`"host": a server has name`: func(c *keep.Config) { c.Leaves[1].DNSNames = []string{"x"} },
	} {
		w := newWorld(t)
		change(&w.config)
		if _, err := keep.Run(t.Context(), w, w.config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	w := newWorld(t)
	w.config.LeafTTL, w.config.AuthorityTTL, w.config.Overlap = keep.MinLeafTTL, 2*keep.MinLeafTTL, keep.MinOverlap
	w.run()
}

// TestEveryPeerTrustsEveryOther runs passes at random times, some of which fail in the middle, and has peers that take a changed Secret up
// to the overlap later: each certificate that one holds is trusted by each bundle that another one holds.
func TestEveryPeerTrustsEveryOther(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { followYears(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// peer is a holder of a Secret's content as it was.
type peer struct {
	name string
	held int // version, from 1
}

func followYears(t *testing.T, random *rand.Rand) {
	w := newWorld(t)
	w.run()
	var peers []*peer
	for range 2 {
		for name := range w.secrets {
			peers = append(peers, &peer{name, 1})
		}
	}
	w.fails = func() bool { return random.IntN(4) == 0 }
	rotations := map[string]bool{}
	for range 150 {
		w.time = w.time.Add(time.Duration(random.Int64N(int64(3 * day))))
		if random.IntN(20) == 0 {
			ca := w.secrets["ca"]
			ca.Files = maps.Clone(ca.Files)
			ca.Files[keep.RotateKey] = []byte("now")
			w.put(ca)
		}
		if _, err := keep.Run(t.Context(), w, w.config); err != nil && !errors.Is(err, errWrite) {
			t.Fatal(err)
		}
		for _, p := range peers {
			w.take(p, random)
		}
		w.wantPeersTrust(peers)
		rotations[string(w.secrets["ca"].Files[keep.CertKey])] = true
	}
	if len(rotations) < 3 {
		t.Errorf("only %d authorities have issued", len(rotations))
	}
}

// take has a peer take a later content, no older than the newest content from an overlap ago.
func (w *world) take(p *peer, random *rand.Rand) {
	history := w.history[p.name]
	oldest := p.held
	for i, h := range history {
		if i+1 > oldest && !h.at.After(w.time.Add(-w.config.Overlap)) {
			oldest = i + 1
		}
	}
	p.held = oldest + random.IntN(len(history)-oldest+1)
}

func (w *world) wantPeersTrust(peers []*peer) {
	w.t.Helper()
	held := func(p *peer) keep.Secret { return w.history[p.name][p.held-1].secret }
	leaves := slices.DeleteFunc(slices.Clone(peers), func(p *peer) bool { return p.name == w.config.Authority })
	for _, a := range peers {
		for _, b := range leaves {
			pair := [2]peer{*a, *b}
			if until, known := w.trusted[pair]; known && w.time.Before(until) {
				continue
			}
			if err := trusts(w.t, held(a), held(b), w.time); err != nil {
				w.t.Fatalf("%s: %s (version %d) does not trust %s (version %d): %v", w.time, a.name, a.held, b.name, b.held, err)
			}
			w.trusted[pair] = leaf(w.t, held(b)).NotAfter
		}
	}
}
