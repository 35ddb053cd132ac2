package keeper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// TestTheCapabilityOfTheEntriesIsKept: the mesh knows hashes only, and with another capability it would refuse every review.
func TestTheCapabilityOfTheEntriesIsKept(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	secret := identity.NewCapability()
	with := func(notAfter string) []kinds.Capability {
		return []kinds.Capability{{Name: "a", SHA256: fmt.Sprintf("%x", secret.Sum()), NotAfter: notAfter}}
	}
	for name, tt := range map[string]struct {
		identities   []string
		capabilities []kinds.Capability
		shown        identity.Capability
		kept         bool
		wrong        string
	}{
		"it is one of the cluster's":               {capabilities: with(""), shown: secret, kept: true},
		"it has not expired":                       {capabilities: with("2026-11-23T00:00:01Z"), shown: secret, kept: true},
		"it has expired":                           {capabilities: with("2026-11-23T00:00:00Z"), shown: secret, wrong: "cluster register --capability-file"},
		"it is another one":                        {capabilities: with(""), shown: identity.NewCapability(), wrong: "cluster register --capability-file"},
		"the entries show none":                    {capabilities: with(""), wrong: "cluster register --capability-file"},
		"another one, and there is a certificate":  {identities: []string{"a"}, capabilities: with(""), shown: identity.NewCapability()},
		"a certificate alone":                      {identities: []string{"a"}},
		"its own, beside which is the certificate": {identities: []string{"a"}, capabilities: with(""), shown: secret, kept: true},
	} {
		c := &kinds.Cluster{Spec: kinds.ClusterSpec{
			Identities: tt.identities, Capabilities: tt.capabilities,
			Registration: &kinds.Registration{URL: "https://mesh.example.com", MutateTimeout: "7s"},
		}}
		o, err := new(machine).optionsFor(c, shownBy{tt.shown, true, true}, now)
		if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: error %v", name, err)
		}
		if err == nil && (o.Capability == secret) != tt.kept || err == nil && !tt.kept && !o.Capability.IsZero() {
			t.Errorf("%s: kept %v", name, !o.Capability.IsZero())
		}
		if err == nil && (o.URL != "https://mesh.example.com" || o.Timeouts.Mutate != 7*time.Second) {
			t.Errorf("%s: options %+v", name, o)
		}
	}
}

// TestTheResourcesOfAClusterAreBooked has a cluster read its resources three times, the last time without memory.
func TestTheResourcesOfAClusterAreBooked(t *testing.T) {
	ledger, err := memory.New(memory.Options{Total: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := &Keeper{o: Options{Memory: ledger}}
	e := &entries{machine: newMachine("prod-1", &k.o), k: k}
	e.config, e.client = newAPIServer().client("one")
	e.client.Transport = answers.Transport{RoundTripper: e.client.Transport, Memory: ledger, Cluster: "prod-1"}
	for range 2 {
		if err := e.refreshFamilies(t.Context()); err != nil || len(e.families) != 1 {
			t.Fatal(err, e.families)
		}
		if used, want := ledger.InUse(), bytesOf(e.families); used != want || want < wayBytes {
			t.Errorf("%d bytes are booked, want %d", used, want)
		}
	}
	rest, err := ledger.Reserve("prod-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	rest.Charge(1 << 20)
	known, used := &e.families[0], ledger.InUse()
	if err := e.refreshFamilies(t.Context()); err != nil || &e.families[0] != known || ledger.InUse() != used {
		t.Errorf("without memory: %v, %v, %d bytes are booked", err, e.families, ledger.InUse())
	}
	rest.Release()
	if e.booked.Release(); ledger.InUse() != 0 {
		t.Errorf("%d bytes stay booked", ledger.InUse())
	}
}
