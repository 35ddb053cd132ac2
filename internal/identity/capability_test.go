package identity

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestNewCapability(t *testing.T) {
	a, b := NewCapability(), NewCapability()
	if a == b || a.Sum() == b.Sum() || a.IsZero() || !(Capability{}).IsZero() {
		t.Errorf("two capabilities are alike, or none: %q and %q", a.Reveal(), b.Reveal())
	}
	if got, err := ParseCapability(a.Reveal()); err != nil || got != a {
		t.Errorf("ParseCapability: %v", err)
	}
	if n := len(a.Reveal()); n != len(CapabilityMark)+43 {
		t.Errorf("%d characters, want 43 for 256 bits and the mark", n)
	}
}

func TestParseCapabilityRefusesOtherTexts(t *testing.T) {
	good := NewCapability().Reveal()
	canonical := CapabilityMark + strings.Repeat("A", 43)
	for name, text := range map[string]string{
		"empty": "", "the mark": CapabilityMark, "short": good[:len(good)-1], "long": good + "A", "no mark": good[len(CapabilityMark):],
		"another mark": "Pcap_" + good[len(CapabilityMark):], "padded": good + "=", "a space": " " + good, "a line": good + "\n",
		"a line inside": CapabilityMark + strings.Repeat("A", 42) + "\n", "base64 of another alphabet": CapabilityMark + strings.Repeat("+", 43),
		"bits that count for nothing": canonical[:len(canonical)-1] + "B", "words": "correct horse battery staple",
	} {
		c, err := ParseCapability(text)
		if err == nil || !c.IsZero() {
			t.Errorf("%s is taken", name)
		}
		if err != nil && len(text) > 8 && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error repeats the text", name)
		}
	}
	if _, err := ParseCapability(canonical); err != nil {
		t.Error(err)
	}
}

func TestACapabilityPrintsAsAPlaceholder(t *testing.T) {
	c := NewCapability()
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "capability", c, "in", struct{ C Capability }{c})
	asJSON, err := json.Marshal(map[string]any{"c": c, "p": &c})
	if err != nil {
		t.Fatal(err)
	}
	written := log.String() + string(asJSON) + fmt.Sprintf("%v %+v %#v %s %q %v", c, c, c, c, c, struct{ C Capability }{c})
	if strings.Contains(written, c.Reveal()[len(CapabilityMark):]) || !strings.Contains(written, redacted) {
		t.Errorf("it is shown, or no placeholder for it: %s", written)
	}
}
