package serve

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
)

func TestGetWatchesDispatchersAndChanges(t *testing.T) {
	t.Parallel()
	ready := withStore(t)
	table := watch(t, "dispatchers", "--ready-file", ready)
	lines := watch(t, "changes", "-o", "json", "--ready-file", ready)
	table.out.shows(t, "DISPATCHER ")
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	for _, said := range []string{`"created ValidatingWebhookConfiguration/policy"`, `"updated ValidatingWebhookConfiguration/policy"`} {
		if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.Code != 0 {
			t.Fatal(r.Notes)
		}
		lines.out.shows(t, said)
		documents = strings.Replace(documents, "Fail", "Ignore", 1)
	}
	changes := clitest.Execute(t, configcli.NewGet(), nil, "changes", "--ready-file", ready)
	table.out.shows(t, "Current  "+strings.Fields(strings.Split(changes.Out, "\n")[1])[0]) // the last revision
	table.ends(t)
	lines.ends(t)
}

// door is an address that leads to whoever is behind it now.
type door struct {
	listener net.Listener
	behind   atomic.Pointer[string]
}

func newDoor(t *testing.T, behind string) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{listener: listener}
	d.behind.Store(&behind)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { d.carry(client) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	return d
}

// carry serves one connection, until either end is gone.
func (d *door) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *d.behind.Load())
	if err != nil {
		return
	}
	defer server.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
	_ = server.Close()
	<-back
}

func TestAWatchSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var certificates listen.TLSFiles
	first, stop := storeAs(t, dir, func(c *serveConfig) { certificates = c.tls })
	d := newDoor(t, first.Hosts)
	atDoor := first
	atDoor.Hosts = d.listener.Addr().String()
	w := watch(t, "changes", "--ready-file", readyFileOf(t, atDoor))
	apply := func(info listen.ReadyInfo, documents string) {
		t.Helper()
		if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", readyFileOf(t, info)); r.Code != 0 {
			t.Fatal(r.Notes)
		}
	}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply(first, documents)
	w.out.shows(t, "created ValidatingWebhookConfiguration/policy")
	stop()
	w.notes.shows(t, "asking again")
	second, _ := storeAs(t, dir, func(c *serveConfig) { c.tls = certificates })
	second.CA, second.ClientCert, second.ClientKey = first.CA, first.ClientCert, first.ClientKey
	d.behind.Store(&second.Hosts)
	apply(second, strings.Replace(documents, "Fail", "Ignore", 1))
	w.out.shows(t, "updated ValidatingWebhookConfiguration/policy")
	w.ends(t)
	if created := strings.Count(w.out.text.String(), "created ValidatingWebhookConfiguration/policy"); created != 1 {
		t.Errorf("shown %d times: %s", created, &w.out.text)
	}
}
