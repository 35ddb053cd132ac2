package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a Permit.
const (
	// MaxPermit is the longest that one holds.
	MaxPermit = 24 * time.Hour
	// MaxPermitReason bounds its reason, in bytes: it is part of audit annotations.
	MaxPermitReason = 256
)

// Permit lets one dispatcher judge by a stale configuration until it lapses: an operator's decision during an incident. It is
// immutable.
type Permit struct {
	// Given is when it was given.
	Given time.Time `json:"given"`
	// Until is when it lapses; at most MaxPermit after Given.
	Until time.Time `json:"until"`
	// Actor is the identity that gave it.
	Actor string `json:"actor"`
	// Reason is why, in the actor's words: 1 to MaxPermitReason bytes.
	Reason string `json:"reason"`
}

// Validate returns an error for a permit that is not valid at a time.
func (p *Permit) Validate(now time.Time) error {
	switch life := p.Until.Sub(p.Given); {
	case life <= 0 || life > MaxPermit:
		return fmt.Errorf("a permit holds for more than nothing and at most %s, not for %s", MaxPermit, life)
	case p.Given.After(now):
		return fmt.Errorf("it is given at %s, and now is %s: the clock was set back", p.Given.Format(time.RFC3339), now.Format(time.RFC3339))
	case p.Actor == "":
		return errors.New("a permit needs its actor")
	case strings.TrimSpace(p.Reason) == "" || len(p.Reason) > MaxPermitReason || !utf8.ValidString(p.Reason):
		return fmt.Errorf("say why, in at most %d bytes", MaxPermitReason)
	}
	return nil
}

// Holds reports whether it has not lapsed.
func (p *Permit) Holds(now time.Time) bool { return p != nil && now.Before(p.Until) }

// audit is the text for the audit log of a review that is judged by a stale configuration of an age.
func (p *Permit) audit(age time.Duration) string {
	said := struct {
		Age    string `json:"age"`
		Until  string `json:"until"`
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
	}{age.Round(time.Second).String(), p.Until.UTC().Format(time.RFC3339), p.Actor, p.Reason}
	data, _ := json.Marshal(said) //nolint:errchkjson // strings can always be written
	return string(data)
}

// allowance is the permit that was given last. It is immutable; the next one replaces it and wakes the reviews that wait.
type allowance struct {
	permit *Permit       // nil is the usual case
	next   chan struct{} // closed when it is replaced
}

// Permit lets a stale configuration judge reviews while the permit holds; reviews that wait begin at once. It replaces the
// permit before; nil revokes it. Before the first configuration it has no effect.
func (s *Store) Permit(p *Permit) {
	close(s.allowed.Swap(&allowance{permit: p, next: make(chan struct{})}).next)
}

// Permitted is the permit that holds; nil is the usual case.
func (s *Store) Permitted() *Permit {
	if p := s.allowed.Load().permit; p.Holds(time.Now()) {
		return p
	}
	return nil
}
