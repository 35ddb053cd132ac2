package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

var (
	command = flag.String("testhost", os.Getenv("PORTCULLIS_TESTHOST"),
		"command that starts a test host, split at spaces, run from the root of the repository; empty means that of Go")
	column = flag.String("name", cmp.Or(os.Getenv("PORTCULLIS_TESTHOST_NAME"), "go"), "name of the test host in the table")
	table  = flag.String("table", os.Getenv("PORTCULLIS_TABLE"), "Markdown file with the results, of which the run writes its column")
	// patience bounds each wait for something that has to happen. It is generous: a busy machine is no failure.
	patience = flag.Duration("patience", duration(os.Getenv("PORTCULLIS_PATIENCE"), 2*time.Minute), "bound of each wait")
)

func duration(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}

// testCase is one thing that is asked of a host.
type testCase struct {
	name    string // in words joined by dashes
	asks    string // a sentence: the behaviour of a host
	why     string // the harm without it
	section string // heading in docs/protocol.md, as an anchor
	play    func(s *stage)
}

func cases() []testCase {
	return slices.Concat(
		sessionCases(), identityCases(), reviewCases(), initializerCases(), verdictCases(), timeCases(), creditCases(), frameCases(),
		linkCases(), leaveCases(), fleetCases(), versionCases(), hostileCases(), loadCases(), meshCases(), meshInitializerCases(),
	)
}

func TestConformance(t *testing.T) {
	started := startCommand(t)
	results := results{passed: map[string]bool{}}
	t.Cleanup(func() { results.write(t) })
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most cases wait
			t.Cleanup(func() { results.add(c.name, !t.Failed()) })
			t.Logf("%s\nWithout it: %s\ndocs/protocol.md#%s", c.asks, c.why, c.section)
			c.play(&stage{T: t, command: started, dir: t.TempDir()})
		})
	}
}

// results are the cases that have run. It may be used concurrently.
type results struct {
	mu     sync.Mutex
	passed map[string]bool
}

func (r *results) add(name string, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed[name] = passed
}

// write writes the table, if there is to be one.
func (r *results) write(t *testing.T) {
	t.Helper()
	if *table == "" {
		return
	}
	if err := writeTable(*table, *column, r.passed); err != nil {
		t.Error(err)
	}
}

// startCommand is the command that starts the test host. It builds the Go host if no other is named.
func startCommand(t *testing.T) []string {
	t.Helper()
	if words := strings.Fields(*command); len(words) > 0 {
		return words
	}
	program := filepath.Join(t.TempDir(), "testhost")
	args := []string{"build", "-o", program}
	if citest.Race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(t.Context(), "go", append(args, "./testhost")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return []string{program}
}

var heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)

func TestEachCaseNamesASectionOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	anchors, used, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(string(page), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(found[1]), " ", "-")] = true
	}
	for _, c := range cases() {
		if c.asks == "" || c.why == "" || names[c.name] {
			t.Errorf("case %q has no sentence, no reason, or the name of another one", c.name)
		}
		if !anchors[c.section] {
			t.Errorf("case %q names the section %q, which docs/protocol.md does not have", c.name, c.section)
		}
		names[c.name], used[c.section] = true, true
	}
}

// stage has the parts of one case. Its methods are called by the goroutine of the test.
type stage struct {
	*testing.T

	command []string
	dir     string
	latest  *program // that was started last
}

// must ends the case in an error.
func must[T any](s *stage) func(value T, err error) T {
	return func(value T, err error) T {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
		return value
	}
}

func (s *stage) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until polls a condition, for things that change by themselves and signal no change.
func (s *stage) until(condition string, done func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), *patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("waited %s in vain: %s", *patience, condition)
		}
	}
}

// pass lets time go by, for cases about time.
func (s *stage) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.Context().Done():
	}
}

// tableHead stands above the table in docs/conformance.md.
const tableHead = "# Conformance\n\n" +
	"Which test host passes which case of the [conformance suite](../sdk/conformance/README.md).\n" +
	"`make conformancetable` writes it.\n\n"

// writeTable writes the column of one test host. Entries of other columns, and of cases that did not run, stay.
func writeTable(file, name string, results map[string]bool) error {
	columns, old, err := readTable(file)
	if err != nil {
		return err
	}
	if !slices.Contains(columns, name) {
		columns = append(columns, name)
	}
	var b strings.Builder
	b.WriteString(tableHead)
	fmt.Fprintf(&b, "| case | a host |%s\n|---|---|%s\n", cells(columns), strings.Repeat("---|", len(columns)))
	for _, c := range cases() {
		entries := make([]string, len(columns))
		for i, column := range columns {
			entries[i] = old[c.name][column]
			if passed, ran := results[c.name]; ran && column == name {
				entries[i] = map[bool]string{true: "pass", false: "FAIL"}[passed]
			}
		}
		fmt.Fprintf(&b, "| [`%s`](protocol.md#%s) | %s |%s\n", c.name, c.section, c.asks, cells(entries))
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func cells(texts []string) string { return " " + strings.Join(texts, " | ") + " |" }

// readTable reads a table of writeTable: the names of the columns, and the entries by case and column.
func readTable(file string) (columns []string, entries map[string]map[string]string, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	entries = map[string]map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		switch {
		case len(fields) < 3 || fields[0] == "---":
		case columns == nil:
			columns = fields[2:]
		default:
			_, rest, _ := strings.Cut(fields[0], "`")
			name, _, _ := strings.Cut(rest, "`")
			entries[name] = map[string]string{}
			for i, entry := range fields[2:min(len(fields), 2+len(columns))] {
				entries[name][columns[i]] = entry
			}
		}
	}
	return columns, entries, err
}

func TestTheTableKeepsTheOtherColumns(t *testing.T) {
	file, first := filepath.Join(t.TempDir(), "table.md"), cases()[0].name
	for name, passed := range map[string]bool{"go": true, "rust": false} {
		if err := writeTable(file, name, map[string]bool{first: passed}); err != nil {
			t.Fatal(err)
		}
	}
	columns, entries, err := readTable(file)
	if err != nil || len(columns) != 2 || entries[first]["go"] != "pass" || entries[first]["rust"] != "FAIL" {
		t.Errorf("read %v and %v, %v", columns, entries[first], err)
	}
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil || !strings.HasPrefix(string(page), tableHead) {
		t.Errorf("docs/conformance.md begins otherwise than the table, %v", err)
	}
}
