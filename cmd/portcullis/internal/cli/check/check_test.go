package check

import (
	"bytes"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// text is a report as people read it.
func text(t *testing.T, r *report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.print(&out, ""); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestACertificateThatEndsIsReported(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cert := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for name, tc := range map[string]struct {
		after time.Duration
		want  string
	}{
		"too early":          {-time.Second, "FAIL it is valid: it begins 2026-01-01T00:00:00Z, which is to come"},
		"long before":        {75 * time.Hour, "ok   it is valid: it ends 2026-01-05T04:00:00Z\n"},
		"in the last fourth": {75*time.Hour + time.Second, "warn it is valid: it ends 2026-01-05T04:00:00Z, in 25h0m0s\n       renew it\n"},
		"at the end":         {100 * time.Hour, "FAIL it is valid: it ends 2026-01-05T04:00:00Z, which is past\n       renew it\n"},
	} {
		r := &report{now: begin.Add(tc.after)}
		r.expiry("c", "it is valid", cert, "renew it")
		if got := text(t, r); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestWhatIsWrongInTheMeshIsReported(t *testing.T) {
	object := func(kind, name string, conditions ...*configv1.Condition) *configv1.ConfigObject {
		return &configv1.ConfigObject{Key: &configv1.ConfigKey{Kind: kind, Name: name}, Conditions: conditions}
	}
	hook := func(name, policy string, state configv1.Hook_State) *configv1.Hook {
		return &configv1.Hook{
			Hook: &configv1.HookRef{Object: &configv1.ConfigKey{Kind: "V", Name: name}, Name: name + ".example.com"}, DispatcherId: "one",
			FailurePolicy: policy, State: state, Unserved: state == configv1.Hook_STATE_IN_ROTATION, Message: "no host is ready",
		}
	}
	r := &report{}
	r.dispatchers(&configv1.ListDispatchersResponse{Behind: []string{"two"}, Dispatchers: []*configv1.DispatcherStatus{
		{DispatcherId: "one", Judging: true, Version: "v1"}, {DispatcherId: "two", Judging: true}, {DispatcherId: "three"},
	}})
	r.dispatchers(&configv1.ListDispatchersResponse{})
	for _, u := range []*configv1.StoreUsage{
		nil, {InUseBytes: 50, QuotaBytes: 100}, {InUseBytes: 51, QuotaBytes: 100}, {InUseBytes: 100, QuotaBytes: 100, Full: true},
	} {
		r.store(u)
	}
	drifted := object("Cluster", "prod-1")
	drifted.Findings = []*configv1.Finding{{Code: "entry-drift", Message: "made from another configuration"}}
	unseen := object("Cluster", "prod-3")
	unseen.Findings = []*configv1.Finding{{Code: "entries-unseen", Message: "no review has come by its entries"}}
	not := &configv1.Condition{Type: "Served", Status: "False", Message: "served on 1 of 2 dispatchers"}
	objects := []*configv1.ConfigObject{
		object("Role", "r", &configv1.Condition{Type: "Accepted", Status: "False", Message: "no identity"}), object("V", "a", not), object("V", "b", not),
		drifted, object("Cluster", "prod-2"), unseen,
	}
	r.objects(objects)
	for _, h := range []*configv1.Hook{
		hook("a", "Fail", configv1.Hook_STATE_IN_ROTATION), hook("c", "Ignore", configv1.Hook_STATE_IN_ROTATION), hook("d", "Fail", configv1.Hook_STATE_PENDING),
	} {
		if !r.hook(h) {
			t.Errorf("%v is not reported", h)
		}
	}
	initializer := hook("i", "Ignore", configv1.Hook_STATE_IN_ROTATION)
	initializer.Stage, initializer.Streamed, initializer.Hook.Object.Kind = "initialize", true, "InitializerConfiguration"
	r.hook(initializer)
	r.served(objects)
	r.entries(objects)
	clitest.Golden(t, "mesh.txt", text(t, r))
	if r.count(failed) != 5 || r.count(warning) != 8 {
		t.Errorf("%d errors, %d warnings", r.count(failed), r.count(warning))
	}
}

func TestAMeshThatDoesNotAnswerIsAnErrorOfItsOwn(t *testing.T) {
	files := clitest.StartMesh(t, nil)
	other := clitest.StartMesh(t, nil)
	args := func(server, ca string) []string {
		return []string{"--server", server, "--ca", ca, "--cert", files.ClientCert, "--key", files.ClientKey}
	}
	r := clitest.Execute(t, NewCommand(), nil, args(files.Hosts, other.CA)...)
	if r.Code != cli.ExitError || !strings.Contains(r.Out, "FAIL the mesh answers at "+files.Hosts) || !strings.Contains(r.Out, "--ca names the authority") {
		t.Errorf("another authority: %+v", r)
	}
	r = clitest.Execute(t, NewCommand(), nil, args("127.0.0.1:1", files.CA)...)
	if r.Code != cli.ExitError || !strings.Contains(r.Out, "is a dispatcher running there") {
		t.Errorf("nothing there: %+v", r)
	}
	r = clitest.Execute(t, NewCommand(), nil, "--server", files.Hosts, "--ca", files.CA, "--cert", files.ClientCert, "--key", other.ClientKey)
	if r.Code == 0 || !strings.Contains(r.Out, "FAIL the client certificate and its key fit") {
		t.Errorf("another key: %+v", r)
	}
	r = clitest.Execute(t, NewCommand(), nil, append(args(files.Hosts, files.CA), "--url", "http://x")...)
	if r.Code != cli.ExitDenied || !strings.Contains(r.Out, "is no HTTPS URL") {
		t.Errorf("a bad URL: %+v", r)
	}
	clitest.Execute(t, NewCommand(), nil).Fails(t, "say which mesh")
}

func TestACheckPrintsNoSecret(t *testing.T) {
	secret := identity.NewCapability().Reveal()
	r := &report{}
	r.ok("c", "one", "quoted "+secret)
	r.warn("c", "two", "quoted "+secret, "")
	r.fail("c", "three", errors.New("quoted "+secret), "")
	for _, format := range []string{"", printer.JSON} {
		var out bytes.Buffer
		if err := r.print(&out, format); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, secret) || strings.Count(text, "quoted pcap_REDACTED") != 3 {
			t.Error(text)
		}
	}
}
