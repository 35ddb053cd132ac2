package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
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
		"a file of another kind":   write(t, "kubeconfig", "apiVersion: v1\nkind: Pod\n"),
		"a file that is no YAML":   write(t, "kubeconfig", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			c := webhookConfig{kubeconfig: file}
			if _, err := c.client(prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "--webhook-kubeconfig") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestServeAndDevKnowTheFlagsOfWebhooks(t *testing.T) {
	for _, usage := range []string{newServeCommand().UsageString(), newDevCommand().UsageString()} {
		for _, want := range []string{"--webhook-kubeconfig", "[$PORTCULLIS_WEBHOOK_KUBECONFIG]", "--webhook-service", "[$PORTCULLIS_WEBHOOK_SERVICE]"} {
			if !strings.Contains(usage, want) {
				t.Errorf("%s is missing", want)
			}
		}
	}
}
