package main

import (
	"log/slog"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// TestThePolicyDecidesTheSharedTable plays the table that the testing packages of all languages play.
func TestThePolicyDecidesTheSharedTable(t *testing.T) {
	host, err := newHost(hostsdk.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Cases(t, host, "../../sdk/conformance/cases.yaml", yaml.YAMLToJSON)
}
