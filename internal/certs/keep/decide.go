package keep

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// kind is the kind of a write.
type kind int

const (
	// nothing is to be done now.
	nothing kind = iota
	// found: there is no authority, and no certificate of any. A new authority issues at once.
	found
	// announce: a new authority is added to the bundle, and issues later.
	announce
	// rebundle: the bundle lacks an authority in use.
	rebundle
	// settle and unsettle: the time since which all leaves fit.
	settle
	unsettle
	// promote: leaves are issued by the new authority from now on.
	promote
	// retire: the old authority leaves the bundle.
	retire
	// distribute: a leaf gets the bundle of now.
	distribute
	// issue: a leaf gets a new certificate, and the bundle of now.
	issue
)

// action is the next write.
type action struct {
	kind    kind
	leaf    int    // of distribute and issue
	why     string // for people
	waiting string // of nothing
}

// decide returns the next write. It is a pure function.
//
// The order keeps the invariant of the package: no leaf is written before the Secret of the authority has its issuer in the bundle;
// and the authority is not changed before all leaves fit it, for the whole overlap.
func decide(s *state, config *Config, now time.Time) action {
	if a := decideAuthority(s, now); a.kind != nothing {
		return a
	}
	if a := decideLeaves(s, now); a.kind != nothing {
		if !s.settled.IsZero() {
			return action{kind: unsettle, why: "the overlap begins again, since " + s.leaves[a.leaf].secret.Name + " did not fit"}
		}
		return a
	}
	if !s.rotating() {
		return decideRotation(s, now)
	}
	if s.settled.IsZero() {
		return action{kind: settle, why: "all certificates fit: the overlap begins"}
	}
	if end := s.settled.Add(config.Overlap); now.Before(end) && !s.issuerEnded(now) {
		return action{waiting: waitingFor(s, end)}
	}
	if name := s.behind(); name != "" && !s.issuerEnded(now) {
		return action{waiting: "the new authority does not issue before " + name + " has it: bring the bundle there"}
	}
	if s.next != nil {
		return action{kind: promote, why: "the new authority issues from now on"}
	}
	return action{kind: retire, why: "the old authority is no longer trusted"}
}

// decideAuthority makes sure that there is an authority that issues, and that the bundle has it.
func decideAuthority(s *state, now time.Time) action {
	switch signer := s.signer(now); {
	case signer == nil && s.issuer == nil && len(s.known()) == 0 && !s.serving(now):
		return action{kind: found, why: "made an authority"}
	case signer == nil:
		return action{kind: announce, why: "made a new authority beside the others that peers trust"}
	}
	if slices.ContainsFunc(s.wanted(), func(c *x509.Certificate) bool { return !s.bundle.has(c) }) {
		return action{kind: rebundle, why: "completed the bundle"}
	}
	return action{}
}

// decideLeaves returns the first leaf that does not fit the authority.
func decideLeaves(s *state, now time.Time) action {
	for i, l := range s.leaves {
		if why := s.reissue(&l, now); why != "" {
			return action{kind: issue, leaf: i, why: why}
		}
		if !l.bundle.same(s.bundle) {
			return action{kind: distribute, leaf: i, why: "changed the trusted authorities"}
		}
	}
	return action{}
}

// reissue returns why a leaf needs a new certificate; empty if it does not.
func (s *state) reissue(l *leafState, now time.Time) string {
	switch {
	case l.cert == nil:
		return "issued a certificate"
	case !now.Before(l.cert.NotAfter):
		return "replaced a certificate that had ended"
	case s.issuer == nil:
		return "" // the authority of these leaves is not at hand, and peers do not know the next one yet
	case !l.fits():
		return "issued a certificate with other names"
	case !issuedBy(l.cert, s.signer(now).Certificate()) && !(s.next != nil && issuedBy(l.cert, s.next.Certificate())):
		return "issued a certificate by the authority of now"
	case lived(l.cert, now, 2, 3) && l.cert.NotAfter.Before(s.signer(now).Certificate().NotAfter):
		return "renewed the certificate"
	}
	return ""
}

// decideRotation begins to replace an authority.
func decideRotation(s *state, now time.Time) action {
	switch {
	case len(s.authority.Files[RotateKey]) > 0:
		return action{kind: announce, why: "made a new authority, as asked for; the old one issues during the overlap"}
	case lived(s.issuer.Certificate(), now, 2, 3):
		return action{kind: announce, why: "made a new authority, since two thirds of the life of the old one are over"}
	}
	return action{}
}

func waitingFor(s *state, end time.Time) string {
	if s.next != nil {
		return fmt.Sprintf("the new authority issues from %s on: until then bring the bundle into the entries of every cluster", end.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the old authority leaves the bundle at %s", end.UTC().Format(time.RFC3339))
}
