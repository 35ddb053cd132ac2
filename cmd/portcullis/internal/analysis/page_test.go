package analysis_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
)

// printed returns the output of `portcullis analyze` for a cluster.
func printed(t *testing.T, f *analysis.Fault, cluster string) string {
	t.Helper()
	var out bytes.Buffer
	if err := analyze.Print(&out, analysis.Reported(f.Records()).Only(cluster, ""), "", time.Minute); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestThePageShowsWhatTheCommandPrints has the page show the output about each fault of the made mesh as it is.
func TestThePageShowsWhatTheCommandPrints(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "slow.md"))
	if err != nil {
		t.Fatal(err)
	}
	text, codes := string(page), map[analysis.Code]bool{}
	for name, f := range analysis.Faults() {
		found := analysis.Findings(f.Records())
		for i := range found {
			codes[found[i].Code] = true
		}
		if len(found) == 0 {
			continue
		}
		_, findings, _ := strings.Cut(printed(t, &f, ""), "\n\n")
		if len(found) > 1 { // the same from each dispatcher
			findings = strings.Join(strings.SplitAfter(findings, "\n")[:2], "")
		}
		if !strings.Contains(text, "\n```\n"+findings+"```\n") {
			t.Errorf("%s: docs/slow.md does not show\n%s", name, findings)
		}
	}
	night := analysis.Faults()["a handler is slow for one cluster"]
	if out := printed(t, &night, "prod-08"); !strings.Contains(text, "\n$ portcullis analyze --cluster prod-08 --since 10m\n"+out+"```\n") {
		t.Errorf("docs/slow.md does not show\n%s", out)
	}
	for _, code := range analysis.Codes() {
		if !codes[code] {
			t.Errorf("no fault of the made mesh is found as %s", code)
		}
		if !strings.Contains(text, "\n### "+string(code)+"\n") {
			t.Errorf("docs/slow.md has no heading for %s", code)
		}
	}
}
