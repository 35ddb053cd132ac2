package serve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestAddressesAmongThoseThatAreAdvertised(t *testing.T) {
	got := addressesOf([]string{"10.0.0.7:8444", "[fd00::7]:8444", "[fe80::1%eth0]:1", "[::ffff:10.0.0.8]:8444", "mesh.example.com:443", "10.0.0.9", ""})
	if want := "[10.0.0.7/32 fd00::7/128 fe80::1/128 10.0.0.8/32]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestWebhooksAreNotCalledAtTheMesh: neither at another dispatcher, nor where API servers reach the mesh, nor where the operator says.
func TestWebhooksAreNotCalledAtTheMesh(t *testing.T) {
	a, _, info := appWithStore(t, func(_ *dev, c *serveConfig) {
		c.advertise, c.webhooks.Refused = []string{"10.0.0.7"}, []string{"10.2.0.0/16"}
	})
	if r := clitest.Execute(t, configcli.NewApply(), nil, "--ready-file", readyFileOf(t, info), "--wait", "-f", clitest.Write(t, "c.yaml",
		"apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod}\n"+
			"spec: {identities: [a], kubeconfig: /none, registration: {url: 'https://10.96.0.9/'}}\n")); r.Code != 0 {
		t.Fatal(r)
	}
	for _, address := range []string{"10.0.0.7", "10.96.0.9", "10.2.3.4"} {
		url := "https://" + address
		err := a.webhooks.Reach(t.Context(), "prod", &admissionregistrationv1.WebhookClientConfig{URL: &url})
		if err == nil || !strings.Contains(err.Error(), "of the mesh, or of --webhook-refuse") {
			t.Errorf("%s: %v", address, err)
		}
	}
	other := []*configv1.DispatcherReport{{Status: &configv1.DispatcherStatus{
		DispatcherId: "other", Addresses: []string{"10.0.0.8:8444", "mesh.example.com:8444"},
	}}}
	for late := time.Now().Add(time.Minute); !slices.Contains(a.meshAddresses(), netip.MustParsePrefix("10.0.0.8/32")); {
		if time.Now().After(late) {
			t.Fatalf("the address of the other dispatcher is not among %v", a.meshAddresses())
		}
		a.control.others.set(slices.Clone(other), a.config.id) // until the reports in the store are read, which do not have it
	}
}
