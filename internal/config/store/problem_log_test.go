package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestReadersShareTheProblemsUntilOneChanges(t *testing.T) {
	r := newProblemLog(Options{Sources: []config.Source{&memory{name: "m"}}, Logger: slog.New(slog.DiscardHandler)})
	found := config.Problems{{Code: "a", Severity: match.SeverityInfo}, {Code: "b", Severity: match.SeverityInfo}}
	r.built(found, nil, nil)
	first := r.all()
	if again := r.all(); len(first) != 2 || &first[0] != &again[0] {
		t.Errorf("%v and %v are two lists", first, again)
	}
	if cap(first) != len(first) {
		t.Error("an append of one reader would write into the list of another")
	}
	r.inspected(found[:1])
	if n := len(r.all()); n != 3 {
		t.Errorf("%d problems after an inspection, want 3", n)
	}
	r.listed(0, errors.New("no"))
	r.watched(0, errors.New("no"))
	if n := len(r.all()); n != 5 {
		t.Errorf("%d problems after a listing that failed, want 5", n)
	}
	r.listed(0, nil)
	if n := len(r.all()); n != 4 || len(first) != 2 {
		t.Errorf("%d problems after a listing, want 4; the first reader has %d, want 2", n, len(first))
	}
}

func TestTheErrorOfASourceHoldsNoSecret(t *testing.T) {
	secret := identity.NewCapability().Reveal()
	r := newProblemLog(Options{Sources: []config.Source{&memory{name: "m"}}, Logger: slog.New(slog.DiscardHandler)})
	r.listed(0, errors.New("quoted "+secret))
	r.watched(0, errors.New("quoted "+secret))
	if text := fmt.Sprint(r.all(), r.failure()); strings.Contains(text, secret) || strings.Count(text, "quoted pcap_REDACTED") != 3 {
		t.Error(text)
	}
}
