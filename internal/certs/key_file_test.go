package certs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeysFollowTheirFile: a good file is taken, and a bad one leaves the keys as they are.
func TestKeysFollowTheirFile(t *testing.T) {
	type keys struct{ lines []string }
	parse := func(text []byte) (*keys, error) {
		k := &keys{strings.Fields(string(text))}
		if len(k.lines) == 0 || bytes.Contains(text, []byte("bad")) {
			return nil, errors.New("no keys")
		}
		return k, nil
	}
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	f, err := OpenKeyFile(KeyFileOptions[keys]{File: file, Parse: parse, Names: func(k *keys) []string { return k.lines }})
	if err != nil {
		t.Fatal(err)
	}
	before := f.Current()
	for name, text := range map[string]string{
		"the same": "first\n", "no keys": "", "a bad line": "first\nbad\n", "a large file": strings.Repeat("#\n", maxKeyFile/2) + "first",
	} {
		write(text)
		if err := f.read(); (err != nil) != (name != "the same") || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error %v", name, err)
		}
		if f.Current() != before {
			t.Errorf("%s: the keys are others", name)
		}
	}
	write(strings.Repeat("#\n", maxKeyFile/2-3) + "second")
	if err := f.read(); err != nil || f.Current() == before {
		t.Errorf("at the limit: error %v, keys %v", err, f.Current().lines)
	}
}
