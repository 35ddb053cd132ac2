package certs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(file, 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, error %v", data, err)
	}
	for what, read := range map[string]func() ([]byte, error){
		"has more than 4 bytes": func() ([]byte, error) { return ReadFile(file, 4) },
		"is no regular file":    func() ([]byte, error) { return ReadFile(pipe, 5) },
		"no such file":          func() ([]byte, error) { return ReadFile(file+"s", 5) },
	} {
		if _, err := read(); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error %v, want %q of the file", err, what)
		}
	}
}

func TestReadCertificates(t *testing.T) {
	ca, err := NewAuthority("files", 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Spec{Identity: "x", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mixed.pem")
	for content, want := range map[string]int{
		string(pair.KeyPEM) + string(pair.CertPEM) + string(ca.CA().CertPEM): 2, string(pair.KeyPEM): 0, "": 0,
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": 0,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadCertificates(file)
		if len(got) != want || (err == nil) != (want > 0) || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("%d certificates, error %v, want %d of %q", len(got), err, want, content)
		}
	}
}
