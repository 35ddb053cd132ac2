package staged_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// keyLine is a line of a file of keys.
func keyLine(name string, fill byte) string {
	return name + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)) + "\n"
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// keyring is one with a file of its own, which is not read again.
func keyring(t *testing.T, text string) *staged.Keyring {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	write(t, file, text)
	k, err := staged.OpenKeyring(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestFilesOfKeys(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"one key":                      {keyLine("k1", 1), ""},
		"comments and empty lines":     {"# ours\n\n" + keyLine("k.2-x_y", 1) + "\n" + keyLine("k1", 2), ""},
		"no final newline":             {strings.TrimSpace(keyLine("k1", 1)), ""},
		"nothing":                      {"# none\n", "has no key"},
		"no name":                      {keyLine("", 1), "line 1 is no key"},
		"a name with a slash":          {keyLine("k1", 1) + keyLine("a/b", 1), "line 2 is no key"},
		"a key without a name":         {base64.StdEncoding.EncodeToString(make([]byte, 32)), "line 1 is no key"},
		"a short key":                  {"k1:" + base64.StdEncoding.EncodeToString(make([]byte, 31)), "line 1 is no key"},
		"a long key":                   {"k1:" + base64.StdEncoding.EncodeToString(make([]byte, 33)), "line 1 is no key"},
		"a key that is not in base64":  {"k1:" + strings.Repeat("!", 44), "line 1 is no key"},
		"two keys of one name":         {keyLine("k1", 1) + keyLine("k1", 2), "line 2 has the name of an earlier key"},
		"seventeen keys":               {manyKeys(17), "has 17 keys, and may have 16"},
		"the configuration of another": {"kind: EncryptionConfiguration\n", "line 1 is no key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "keys")
			write(t, file, test.text)
			_, err := staged.OpenKeyring(file, nil)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := staged.OpenKeyring(filepath.Join(t.TempDir(), "keys"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

func manyKeys(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(keyLine("k"+strings.Repeat("x", i), byte(i)))
	}
	return text.String()
}

// In etcd nothing can be read without the key, and no value can be moved to another place.
func TestEncryption(t *testing.T) {
	client := etcd(t)
	keys := keyring(t, keyLine("k1", 1))
	s := open(t, staged.Options{Client: client, Keys: keys})
	const secret = "a word that is not to be seen"
	o := pod("prod", "p", "u1")
	o.Object.Raw = []byte(`{"a":"` + secret + `"}`)
	created := create(t, s, o)
	got, err := s.Get(t.Context(), created.GetKey())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "read", created, got)

	all, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 1 {
		t.Fatalf("etcd has %d keys: %v", len(all.Kvs), err)
	}
	kv := all.Kvs[0]
	if bytes.Contains(kv.Value, []byte(secret)) || bytes.Contains(kv.Value, []byte("ann")) || !bytes.HasPrefix(kv.Value, []byte("portcullis:aesgcm:v1:k1:")) {
		t.Errorf("etcd has %q", kv.Value)
	}
	moved := strings.TrimSuffix(string(kv.Key), "p") + "q"
	if _, err := client.Put(t.Context(), moved, string(kv.Value)); err != nil {
		t.Fatal(err)
	}
	other := pod("prod", "q", "u1")
	if _, err := s.Get(t.Context(), other.GetKey()); !errors.Is(err, staged.ErrUnreadable) {
		t.Errorf("a value that was moved: %v", err)
	}
	for name, keys := range map[string]*staged.Keyring{"another key": keyring(t, keyLine("k1", 2)), "another name": keyring(t, keyLine("k2", 1)), "no keys": nil} {
		s := open(t, staged.Options{Client: client, Keys: keys})
		if _, err := s.Get(t.Context(), created.GetKey()); !errors.Is(err, staged.ErrUnreadable) {
			t.Errorf("with %s: %v", name, err)
		}
		if all, _ := list(t, s); len(all) > 0 {
			t.Errorf("with %s the list has %v", name, all)
		}
	}
}

// Keys are replaced while objects are staged: each step of the manual, on one dispatcher after the other.
func TestKeysAreReplaced(t *testing.T) {
	client := etcd(t)
	dir := t.TempDir()
	stores, files := make([]*staged.Store, 2), make([]string, 2)
	for i := range stores {
		files[i] = filepath.Join(dir, string(rune('a'+i)))
		write(t, files[i], keyLine("old", 1))
		keys, err := staged.OpenKeyring(files[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = keys.Run(ctx) })
		t.Cleanup(func() { stop(); running.Wait() })
		stores[i] = open(t, staged.Options{Client: client, Keys: keys})
	}
	plain := open(t, staged.Options{Client: client})
	create(t, plain, pod("prod", "plain", "u0"))
	create(t, stores[0], pod("prod", "first", "u1"))

	both, swapped := keyLine("old", 1)+keyLine("new", 2), keyLine("new", 2)+keyLine("old", 1)
	for _, text := range []string{both, swapped} {
		for _, file := range files {
			write(t, file, text)
		}
	}
	for i, s := range stores {
		for deadline := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
			o := create(t, s, pod("prod", "second", "u2"))
			kv, err := client.Get(t.Context(), "/portcullis/staged/prod//pods/default/second")
			if err != nil || len(kv.Kvs) != 1 {
				t.Fatalf("%v, %v", kv, err)
			}
			if _, err := s.Delete(t.Context(), o.GetKey(), "", ""); err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(kv.Kvs[0].Value, []byte("portcullis:aesgcm:v1:new:")) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("dispatcher %d does not use the new key", i)
			}
		}
	}
	create(t, stores[0], pod("prod", "second", "u2"))
	for i, s := range stores {
		all, _ := list(t, s)
		var names []string
		for _, o := range all {
			names = append(names, o.GetKey().GetName())
		}
		equal(t, "what a dispatcher reads", []string{"first", "plain", "second"}, names)
		write(t, files[i], "no key\n") // the last good keys stay
	}
	update(t, stores[1], all(t, stores[1])["second"], `{}`)
}

// all are the staged objects by name.
func all(t *testing.T, s *staged.Store) map[string]*initializerv1.StagedObject {
	t.Helper()
	objects, _ := list(t, s)
	out := map[string]*initializerv1.StagedObject{}
	for _, o := range objects {
		out[o.GetKey().GetName()] = o
	}
	return out
}
