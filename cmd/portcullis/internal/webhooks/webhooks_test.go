package webhooks

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

func TestServicesAreFoundByAllThatIsSaidOfThem(t *testing.T) {
	got, err := parseServices([]string{
		"policy/images=127.0.0.1:8443", "policy/images:8080=[::1]:1", "prod-1.example.com/policy/images=images.example.com:443",
		"prod-2/policy/images:9443=10.0.0.1:65535",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[outbound.Service]string{
		{Namespace: "policy", Name: "images"}:                                "127.0.0.1:8443",
		{Namespace: "policy", Name: "images", Port: 8080}:                    "[::1]:1",
		{Cluster: "prod-1.example.com", Namespace: "policy", Name: "images"}: "images.example.com:443",
		{Cluster: "prod-2", Namespace: "policy", Name: "images", Port: 9443}: "10.0.0.1:65535",
	}
	if !maps.Equal(got, want) {
		t.Errorf("table = %v, want %v", got, want)
	}
}

func TestAServiceThatCannotBeReadIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ entry, want string }{
		"no address":                   {"policy/images", "want [CLUSTER/]NAMESPACE/NAME"},
		"nothing":                      {"", "want [CLUSTER/]NAMESPACE/NAME"},
		"no namespace":                 {"images=a:1", "want [CLUSTER/]NAMESPACE/NAME"},
		"too many parts":               {"a/b/c/d=a:1", "want [CLUSTER/]NAMESPACE/NAME"},
		"an empty cluster":             {"/policy/images=a:1", `"" is no name of a cluster`},
		"an empty namespace":           {"prod//images=a:1", `"" is no name of a namespace`},
		"a name that is none":          {"policy/Images=a:1", `"Images" is no name of`},
		"a DNS name":                   {"policy/images.policy.svc=a:1", `"images.policy.svc" is no name of`},
		"a port that is none":          {"policy/images:https=a:1", `"https" is no port`},
		"a port of zero":               {"policy/images:0=a:1", `"0" is no port`},
		"a port past the last one":     {"policy/images:65536=a:1", `"65536" is no port`},
		"an address without a port":    {"policy/images=images.example.com", `"images.example.com" is no address`},
		"an address without a host":    {"policy/images=:443", `":443" is no address`},
		"an address with a named port": {"policy/images=a:https", `"https" is no port`},
		"a URL":                        {"policy/images=https://a:1", "is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseServices([]string{tc.entry})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--webhook-service") {
				t.Errorf("error = %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAServiceHasOneAddress(t *testing.T) {
	_, err := parseServices([]string{"policy/images=a:1", "policy/images:443=a:1", "policy/images=a:1", "x"})
	for _, want := range []string{`--webhook-service "policy/images=a:1": the service has an address already`, `--webhook-service "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func TestIdentitiesForWebhooksThatCannotBeReadAreRefused(t *testing.T) {
	for name, file := range map[string]string{
		"a file that is not there": "/does/not/exist",
		"a file of another kind":   clitest.Write(t, "kubeconfig", "apiVersion: v1\nkind: Pod\n"),
		"a file that is no YAML":   clitest.Write(t, "kubeconfig", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			c := Flags{Kubeconfig: file}
			if _, err := c.Client(outbound.Options{Metrics: prometheus.NewRegistry()}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--webhook-kubeconfig") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestCredentialsThatGoToNoWebhookAreWarnedOf(t *testing.T) {
	for user, warned := range map[string]bool{"'*'": true, "hooks.example.com": false} {
		var logs bytes.Buffer
		c := Flags{Kubeconfig: clitest.Write(t, "kubeconfig", "apiVersion: v1\nkind: Config\nusers:\n- {name: "+user+", user: {token: secret}}\n")}
		client, err := c.Client(outbound.Options{Metrics: prometheus.NewRegistry()}, slog.New(slog.NewTextHandler(&logs, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(logs.String(), "level=WARN") && strings.Contains(logs.String(), "remedy="); got != warned {
			t.Errorf("user %s: logged %q", user, logs.String())
		}
	}
}

func TestNetworksOfWebhooksAreAddressesOrCIDRs(t *testing.T) {
	got, err := parseNetworks("--webhook-network", []string{"127.0.0.1", "127.0.0.1/8", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "fd00::/8"})
	want := []string{"127.0.0.1/32", "127.0.0.0/8", "::1/128", "fe80::1/128", "10.0.0.1/32", "fd00::/8"}
	if text := fmt.Sprint(got); err != nil || text != fmt.Sprint(want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, entry := range []string{"localhost", "127.0.0", "127.0.0.1/33", "127.0.0.1:443", "", "*"} {
		if _, err := parseNetworks("--webhook-network", []string{entry}); err == nil || !strings.Contains(err.Error(), "want an IP address or a CIDR") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func TestNetworksThatAreRefusedAreAddressesOrCIDRs(t *testing.T) {
	c := Flags{Refused: []string{"mesh.example.com"}}
	if _, err := c.Client(outbound.Options{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--webhook-refuse") {
		t.Errorf("a name: %v", err)
	}
	c = Flags{Refused: []string{"10.2.0.0/16"}}
	client, err := c.Client(outbound.Options{Refused: func() []netip.Prefix { return nil }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://10.2.3.4"
	if err := client.Reach(t.Context(), "prod", &admissionregistrationv1.WebhookClientConfig{URL: &url}); err == nil || !strings.Contains(err.Error(), "--webhook-refuse") {
		t.Errorf("an address: %v", err)
	}
}
