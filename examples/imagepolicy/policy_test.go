package main

import (
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestThePolicyDecidesItsCases: the file has the same cases as the policy in other languages.
func TestThePolicyDecidesItsCases(t *testing.T) {
	hosttest.Cases(t, policy(t), "cases.yaml", yaml.YAMLToJSON)
}

// policy is the host with its hooks.
func policy(t *testing.T) *hostsdk.Host {
	t.Helper()
	host, err := newHost(hostsdk.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func TestTheMeshMayAskForTheLabelAheadOfItsTurn(t *testing.T) {
	offers := map[string]bool{}
	for _, hook := range hosttest.Start(t, policy(t)).Hello().GetHooks() {
		offers[hook.GetName()] = hook.GetSpeculate()
	}
	if want := map[string]bool{"imagepolicy.example.com": false, "team-label.example.com": true}; !reflect.DeepEqual(offers, want) {
		t.Errorf("hooks that agree to speculation: %v, want %v", offers, want)
	}
}

func TestItSaysWhatIsMissing(t *testing.T) {
	if err := run(t.Context(), nil, io.Discard); err == nil || !strings.Contains(err.Error(), "--dispatchers") {
		t.Errorf("without flags: %v", err)
	}
}
