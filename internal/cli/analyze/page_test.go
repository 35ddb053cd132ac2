package analyze

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page is the page about slow reviews.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "slow.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// printed is what `portcullis analyze` prints of a cluster.
func printed(t *testing.T, f *madeFault, cluster string) string {
	t.Helper()
	var out, notes bytes.Buffer
	c := &command{}
	if err := c.print(Reported(f.records()).Only(cluster, ""), &notes, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestThePageShowsWhatTheCommandPrints has the page show the output about each fault of the made mesh as it is.
func TestThePageShowsWhatTheCommandPrints(t *testing.T) {
	text, codes := page(t), map[Code]bool{}
	for name, f := range madeFaults() {
		for _, finding := range f.found() {
			codes[finding.Code] = true
		}
		if len(f.want) == 0 {
			continue
		}
		_, findings, _ := strings.Cut(printed(t, &f, ""), "\n\n")
		if len(f.want) > 1 { // the same from each dispatcher
			findings = strings.Join(strings.SplitAfter(findings, "\n")[:2], "")
		}
		if !strings.Contains(text, "\n```\n"+findings+"```\n") {
			t.Errorf("%s: docs/slow.md does not show\n%s", name, findings)
		}
	}
	night := madeFaults()["a handler is slow for one cluster"]
	if out := printed(t, &night, "prod-08"); !strings.Contains(text, "\n$ portcullis analyze --cluster prod-08 --since 10m\n"+out+"```\n") {
		t.Errorf("docs/slow.md does not show\n%s", out)
	}
	for code := range help {
		if !codes[code] {
			t.Errorf("no fault of the made mesh is found as %s", code)
		}
		if !strings.Contains(text, "\n### "+string(code)+"\n") {
			t.Errorf("docs/slow.md has no heading for %s", code)
		}
	}
}
