package identity

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func keysOf(t *testing.T, lines ...string) *CapabilityKeys {
	t.Helper()
	keys, err := ParseCapabilityKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// withEnd replaces the end of a made capability, and keeps each bit of the code that authenticates it.
func withEnd(t *testing.T, made Capability, end time.Time) Capability {
	t.Helper()
	token, err := base64.RawURLEncoding.DecodeString(made.Reveal()[len(CapabilityMark):])
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(token, uint64(end.Unix()))
	return Capability{CapabilityMark + base64.RawURLEncoding.EncodeToString(token)}
}

// TestACapabilityIsFoundByTheKeyThatMadeIt: every key is accepted, and the first makes.
func TestACapabilityIsFoundByTheKeyThatMadeIt(t *testing.T) {
	a, b, other := NewCapabilityKey(), NewCapabilityKey(), NewCapabilityKey()
	end := time.Unix(1_800_000_000, 0)
	keys, turned := keysOf(t, a, b), keysOf(t, b, a)
	made := keys.Make("prod-1", end)
	if made != keysOf(t, a).Make("prod-1", end) || made == turned.Make("prod-1", end) {
		t.Error("it is not the first key that makes")
	}
	if parsed, err := ParseCapability(made.Reveal()); err != nil || parsed != made {
		t.Errorf("it is not of the form of capabilities: %v", err)
	}
	for _, k := range []*CapabilityKeys{keys, turned, keysOf(t, a)} {
		if got, ok := k.Find(made, "prod-1"); !ok || got.Key != keys.Names()[0] || !got.End.Equal(end) {
			t.Errorf("found %v %+v", ok, got)
		}
	}
	for what, find := range map[string]func() (MadeCapability, bool){
		"of another cluster":       func() (MadeCapability, bool) { return keys.Find(made, "prod-2") },
		"of no cluster":            func() (MadeCapability, bool) { return keys.Find(made, "") },
		"by a key that is removed": func() (MadeCapability, bool) { return keysOf(t, b, other).Find(made, "prod-1") },
		"by no keys":               func() (MadeCapability, bool) { return (*CapabilityKeys)(nil).Find(made, "prod-1") },
		"a random one":             func() (MadeCapability, bool) { return keys.Find(NewCapability(), "prod-1") },
		"none":                     func() (MadeCapability, bool) { return keys.Find(Capability{}, "prod-1") },
		"one with another end":     func() (MadeCapability, bool) { return keys.Find(withEnd(t, made, end.Add(time.Hour)), "prod-1") },
	} {
		if got, ok := find(); ok || got != (MadeCapability{}) {
			t.Errorf("%s: found %+v", what, got)
		}
	}
}

func TestParseCapabilityKeys(t *testing.T) {
	key := func(bytes int) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", bytes))) }
	many := make([]string, MaxCapabilityKeys+1)
	for i := range many {
		many[i] = NewCapabilityKey()
	}
	for name, tt := range map[string]struct{ text, wrong string }{
		"one":                     {key(32), ""},
		"the longest":             {key(1024), ""},
		"comments and lines":      {"# old\r\n\n " + key(32) + " \r\n#\n" + key(33) + "\n", ""},
		"the most":                {strings.Join(many[1:], "\n"), ""},
		"nothing":                 {"", "has no key: `portcullis cluster capability key`"},
		"comments alone":          {"# a\n", "has no key"},
		"too short":               {"\n" + key(31), "line 2 is no key, which is 32 to 1024 bytes in base64"},
		"too long":                {key(1025), "line 1 is no key"},
		"no base64":               {"correct horse battery staple", "line 1 is no key"},
		"another base64":          {strings.Repeat("_", 44), "line 1 is no key"},
		"two on a line":           {key(32) + " " + key(33), "line 1 is no key"},
		"the same twice":          {key(32) + "\n" + key(33) + "\n" + key(32), "line 3 has the key of line 1"},
		"more than there may be":  {strings.Join(many, "\n"), "has 5 keys, and may have 4"},
		"bits that mean nothing":  {strings.Repeat("A", 42) + "B=", "line 1 is no key"},
		"one good and one broken": {key(32) + "\n" + key(8), "line 2"},
	} {
		keys, err := ParseCapabilityKeys([]byte(tt.text))
		if tt.wrong == "" && (err != nil || len(keys.Names()) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		if tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%s: %v, want %q", name, err, tt.wrong)
		}
		if err != nil && (strings.Contains(err.Error(), key(31)) || strings.Contains(err.Error(), "horse")) {
			t.Errorf("%s: the error repeats the line: %v", name, err)
		}
	}
}

func TestCapabilityKeysAreNotPrinted(t *testing.T) {
	line := NewCapabilityKey()
	keys := keysOf(t, line)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("keys", "keys", keys)
	for _, text := range []string{fmt.Sprint(keys), fmt.Sprintf("%v %+v %#v", keys, keys, keys), log.String()} {
		if !strings.Contains(text, "REDACTED") || strings.Contains(text, keys.keys[0].name) {
			t.Errorf("printed as %s", text)
		}
	}
}
