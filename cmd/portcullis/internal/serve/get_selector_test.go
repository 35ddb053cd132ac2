package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

// clusters are Clusters with a label, as name=value.
func clusters(labels ...string) string {
	var text strings.Builder
	for _, l := range labels {
		name, tier, _ := strings.Cut(l, "=")
		fmt.Fprintf(&text, "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s, labels: {tier: %s}}\nspec: {identities: [%s]}\n---\n", name, tier, name)
	}
	return text.String()
}

func TestGetSelectsByLabels(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	apply := func(documents string) {
		t.Helper()
		if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
			t.Fatal(r.Notes)
		}
	}
	get := func(args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, configcli.NewGet(), nil, append(args, "--ready-file", ready)...)
	}
	apply(strings.Replace(appliedHooks, "GROUP", "apps", 1) + "---\n" + clusters("east=prod", "west=test"))
	const east, west = "cluster.portcullis.dev/east\n", "cluster.portcullis.dev/west\n"
	for selector, want := range map[string]string{
		"tier=prod": east, "tier in (prod,test)": east + west, "tier,tier!=prod": west, "tier=none": "",
		"!tier": "hookroute.portcullis.dev/policy\nvalidatingwebhookconfiguration.admissionregistration.k8s.io/policy\n",
	} {
		if r := get("-l", selector, "-o", "name"); r.Code != 0 || r.Out != want {
			t.Errorf("-l %q: exit code %d, %q, want %q; %s", selector, r.Code, r.Out, want, r.Notes)
		}
	}
	if r := get("clusters", "-l", "tier=none"); r.Code != 0 || !strings.Contains(r.Notes, "there are none with these labels") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	get("clusters", "-l", "tier=(").Fails(t, `-l "tier=("`)
	get("cluster", "east", "-l", "tier").Fails(t, "select objects by labels or by names")
	get("hosts", "-l", "tier").Fails(t, "-l: hosts have no labels")

	w := watch(t, "clusters", "-l", "tier=prod", "-o", "custom-columns=NAME:.metadata.name,TIER:.metadata.labels.tier", "--ready-file", ready)
	table := watch(t, "clusters", "-l", "tier=prod", "--ready-file", ready)
	w.out.shows(t, "east  prod\n")
	table.out.shows(t, "Cluster/east ")
	apply(clusters("east=test", "west=prod"))
	w.out.shows(t, "west  prod\n")
	table.out.shows(t, "Cluster/east  gone\n")
	w.ends(t)
	table.ends(t)
	if heads := strings.Count(w.out.text.String(), "NAME"); heads != 1 {
		t.Errorf("%d rows of heads: %s", heads, &w.out.text)
	}
}
