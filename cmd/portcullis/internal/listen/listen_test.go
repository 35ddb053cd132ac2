package listen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

func TestFilesOfTheHostsListenerAreFilledUp(t *testing.T) {
	bridge := TLSFiles{Cert: "tls.crt", Key: "tls.key", CA: "ca.crt"}
	for name, tc := range map[string]struct{ hosts, want TLSFiles }{
		"nothing given: the bridge's":                    {TLSFiles{}, bridge},
		"everything given: nothing of the bridge's":      {TLSFiles{"h.crt", "h.key", "h.ca"}, TLSFiles{"h.crt", "h.key", "h.ca"}},
		"other authorities: the bridge's certificate":    {TLSFiles{CA: "h.ca"}, TLSFiles{"tls.crt", "tls.key", "h.ca"}},
		"another certificate: the bridge's authorities":  {TLSFiles{Cert: "h.crt", Key: "h.key"}, TLSFiles{"h.crt", "h.key", "ca.crt"}},
		"a certificate without its key is not completed": {TLSFiles{Cert: "h.crt"}, TLSFiles{"h.crt", "", "ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.hosts.OrElse(bridge); got != tc.want {
				t.Errorf("files = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestTheReadyFileOfAnEarlierProcessIsRemoved(t *testing.T) {
	file := clitest.Write(t, "ready.json", "{}")
	for range 2 { // the second time it is gone already
		if err := RemoveReadyFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

func TestTheReadyFileGoesWithItsProcess(t *testing.T) {
	first, second := ReadyFile{Name: filepath.Join(t.TempDir(), "ready.json")}, ReadyFile{}
	if err := first.Write(ReadyInfo{Hosts: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	second.Name = first.Name
	if err := second.Write(ReadyInfo{Hosts: "127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	first.Remove()
	if _, err := os.Stat(second.Name); err != nil {
		t.Errorf("a process has removed the file of another one: %v", err)
	}
	second.Remove()
	if _, err := os.Stat(second.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file has outlived its process: %v", err)
	}
	new(ReadyFile).Remove() // no file was asked for
}
