package keeper

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// authority is the PEM of an authority and its key.
func authority(t *testing.T) certs.Pair {
	t.Helper()
	a, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a.CA()
}

func TestTheBundleIsTheCertificatesOfTheFile(t *testing.T) {
	old, next := string(authority(t).CertPEM), string(authority(t).CertPEM)
	file := filepath.Join(t.TempDir(), "ca.crt")
	for _, text := range []string{old, old + next, next} {
		write(t, file, "# "+file+"\n"+text)
		bundle, err := bundleOf(&kinds.Registration{CAFile: file})
		if err != nil || string(bundle) != text {
			t.Errorf("the bundle is %q, %v", bundle, err)
		}
	}
	bundle, err := bundleOf(&kinds.Registration{CABundle: []byte(old)})
	if err != nil || string(bundle) != old {
		t.Errorf("that of the document is %q, %v", bundle, err)
	}
	if bundle, err := bundleOf(&kinds.Registration{}); err != nil || bundle != nil {
		t.Errorf("without one it is %q, %v", bundle, err)
	}
}

// TestABadFileIsNoBundle: without a bundle API servers would trust the authorities of their system.
func TestABadFileIsNoBundle(t *testing.T) {
	pair := authority(t)
	cert := string(pair.CertPEM)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	write(t, full, cert+strings.Repeat("\n", kinds.MaxCABundle-len(cert)))
	if _, err := readBundle(full); err != nil {
		t.Errorf("of the largest size: %v", err)
	}
	for name, tt := range map[string]struct{ text, file, wrong string }{
		"missing":          {file: filepath.Join(dir, "absent"), wrong: "no such file"},
		"a directory":      {file: dir, wrong: "no regular file"},
		"a pipe":           {file: pipe, wrong: "no regular file"},
		"empty":            {wrong: "no certificate in it"},
		"no PEM":           {text: "secret", wrong: "no certificate in it"},
		"with a key":       {text: cert + string(pair.KeyPEM), wrong: "want only certificates"},
		"cut off":          {text: cert + cert[:len(cert)-20], wrong: "cut off"},
		"no certificate":   {text: "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n", wrong: "certificate 1"},
		"a byte too large": {text: cert + strings.Repeat("\n", kinds.MaxCABundle-len(cert)+1), wrong: "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.file == "" {
				tt.file = filepath.Join(t.TempDir(), "ca.crt")
				write(t, tt.file, tt.text)
			}
			bundle, err := bundleOf(&kinds.Registration{CAFile: tt.file})
			if err == nil || bundle != nil {
				t.Fatalf("the bundle is %q, %v", bundle, err)
			}
			for _, want := range []string{tt.wrong, tt.file, "spec.registration.caFile", "stay as they are"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not have %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "secret") || bytes.Contains([]byte(err.Error()), pair.KeyPEM) {
				t.Errorf("the error shows the file: %v", err)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
