package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

// module has a package for each way in which tests end.
const module = `
-- go.mod
module example.com/portcullis/m
go 1.26
-- good/good_test.go
package good
import "testing"
func TestGood(t *testing.T) { t.Run("sub", func(*testing.T) {}) }
func TestLeft(t *testing.T) { t.Skip("left to the gate: it takes an hour") }
func TestLacks(t *testing.T) { t.Log("looks for jq"); t.Skip("there is no jq") }
-- bad/bad_test.go
package bad
import "testing"
func TestBad(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("seed 7: wrong") }) }
func TestGood(t *testing.T) {}
-- broken/broken_test.go
package broken
import "testing"
func TestBroken(t *testing.T) { nowhere() }
-- crash/crash_test.go
package crash
import ("os"; "testing")
func TestCrash(t *testing.T) { println("about to end"); os.Exit(3) }
-- leak/leak_test.go
package leak
import ("os"; "testing")
func TestMain(m *testing.M) { m.Run(); println("cleaning"); println("goroutines outlived the tests"); os.Exit(1) }
func TestGood(t *testing.T) {}
`

// inModule makes the module's files and works in their directory.
func inModule(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, part := range strings.Split(module, "\n-- ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestACircleSaysHowEachTestEnds(t *testing.T) {
	inModule(t)
	stages := []stage{
		{{Name: "unit", Dir: ".", Tests: []string{"./..."}}},
		{{Name: "each", Dir: "good", Tests: []string{"."}, EachTest: true}, {Name: "leak", Dir: "leak", Tests: []string{"."}, EachTest: true}, {Name: "lint", Dir: ".", Command: []string{"echo", "no finding"}}},
		{{Name: "generate", Dir: ".", Command: []string{"sh", "-c", "echo gen differs; exit 1"}}},
	}
	var out strings.Builder

	err := runCircle(t.Context(), "gate", stages, &out)

	if !errors.Is(err, errFailed) {
		t.Errorf("error = %v, want that something failed", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"FAILED  unit: m/bad TestBad", "FAILED  unit: m/broken", "FAILED  unit: m/crash TestCrash", "FAILED  unit: m/leak", "FAILED  leak: m/leak", "FAILED  generate: generate",
		"skipped    2: left to the gate", "skipped    2: there is no jq", "gate: 6 passed, 6 failed, 4 skipped",
	}
	if got := lines[len(lines)-1-len(want) : len(lines)-1]; !cmp.Equal(sortedHead(want), sortedHead(got)) {
		t.Errorf("the end of the output (-want +got):\n%s", cmp.Diff(sortedHead(want), sortedHead(got)))
	}
	if last := regexp.MustCompile(`^gate FAILED in \d+s: 6 passed, 6 failed, 4 skipped; .tmp/gate/report.md$`); !last.MatchString(lines[len(lines)-1]) {
		t.Errorf("last line = %q, want %s", lines[len(lines)-1], last)
	}
	for _, text := range []string{"seed 7: wrong", "undefined: nowhere", "about to end", "goroutines outlived", "each: skipped  TestLacks: there is no jq", "each: ok   1 of 3  TestGood", "leak: cleaning"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	checkReport(t)
	if t.Failed() {
		t.Log(out.String())
	}
}

// sortedHead orders the lines about failures, since packages end in any order.
func sortedHead(lines []string) []string {
	lines = slices.Clone(lines)
	slices.Sort(lines[:4])
	return lines
}

// checkReport looks into the report and the logs of the circle "gate".
func checkReport(t *testing.T) {
	t.Helper()
	report, err := os.ReadFile(".tmp/gate/report.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"| lint | ok |", "| generate | FAILED: exit status 1 |", "seed 7: wrong", "gen differs", "| 2 | there is no jq |",
		"Again: `go test -C . -run '^TestBad$' example.com/portcullis/m/bad`",
	} {
		if !strings.Contains(string(report), text) {
			t.Errorf("the report lacks %q:\n%s", text, report)
		}
	}
	log, err := os.ReadFile(".tmp/gate/lint.log")
	if err != nil || string(log) != "no finding\n" {
		t.Errorf("lint.log = %q, %v", log, err)
	}
}

func TestACircleOfGreenStepsPasses(t *testing.T) {
	inModule(t)
	var out strings.Builder

	err := runCircle(t.Context(), "test", []stage{{{Name: "unit", Dir: ".", Tests: []string{"./good"}}}}, &out)

	if err != nil || !strings.Contains(out.String(), "\ntest: 1 passed, 0 failed, 2 skipped\ntest passed in ") {
		t.Errorf("error = %v, output:\n%s", err, out.String())
	}
}

func TestALineThatIsTooLongFailsItsStep(t *testing.T) {
	inModule(t)
	var out strings.Builder
	command := []string{"sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x; echo; echo the end"}

	err := runCircle(t.Context(), "gate", []stage{{{Name: "long", Dir: ".", Command: command}}}, &out)

	if !errors.Is(err, errFailed) || !strings.Contains(out.String(), "gate: 0 passed, 1 failed, 0 skipped") {
		t.Errorf("error = %v, output:\n%s", err, out.String())
	}
}

func TestStepsAreChosenByName(t *testing.T) {
	stages := func() []stage { return []stage{{{Name: "a"}, {Name: "b"}}, {{Name: "c"}}} }
	if got, err := only(stages(), nil); err != nil || len(got) != 2 {
		t.Errorf("no name: %v, %v", got, err)
	}
	got, err := only(stages(), []string{"c", "b"})
	if diff := cmp.Diff([]stage{{{Name: "b"}}, {{Name: "c"}}}, got); err != nil || diff != "" {
		t.Errorf("two names: %v (-want +got):\n%s", err, diff)
	}
	if got, err := only(stages(), []string{"d"}); err == nil {
		t.Errorf("a name of no step: %v, want an error", got)
	}
}

// Each package with tests is in the gate once: with the race detector, or without.
func TestTheGateTestsEachPackageOnce(t *testing.T) {
	graph, err := archtest.Load(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	concurrent, err := archtest.Concurrent(graph)
	if err != nil {
		t.Fatal(err)
	}
	p := packagesOf(graph, concurrent)
	if !slices.Contains(p.pure, "./conversion") || !slices.Contains(p.concurrent, "./dispatcher/session/stream") {
		t.Errorf("pure = %v, concurrent = %v", p.pure, p.concurrent)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-C", "../..", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(strings.ReplaceAll(string(out), graph.Module+"/", "./"))
	got := slices.Concat(p.pure, p.concurrent)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages with tests (-go list +gate):\n%s", diff)
	}
	for _, circle := range []string{"test", "gate", "soak"} {
		if len(stagesOf(circle, p)) == 0 {
			t.Errorf("circle %s is empty", circle)
		}
	}
	if stagesOf("all", p) != nil {
		t.Error("a circle that is none has steps")
	}
}

func TestThePageOfCirclesIsThatOfTheTests(t *testing.T) {
	want, err := os.ReadFile("../../docs/circles.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	var got strings.Builder
	if err := writeTable(&got, "."); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("run `go run ./internal/circles table > docs/circles.md` (-page +tests):\n%s", diff)
	}
}

// TestAStepThatIsSilentNamesTheTestsThatRun: the runner has printed its last line long ago.
func TestAStepThatIsSilentNamesTheTestsThatRun(t *testing.T) {
	d, out := newDigest(), &strings.Builder{}
	r := &runner{out: out}
	lines := []string{"(the first time it compiles Kubernetes and etcd, which takes minutes)"}
	r.still("e2e", time.Minute, d.unfinished())
	for _, name := range []string{"TestD", "TestB", "TestB/sub", "TestA", "TestC", "TestE"} {
		d.read([]byte(`{"Action":"run","Package":"p","Test":"` + name + `"}`))
	}
	for _, step := range []struct{ ends, want string }{
		{"TestE", "(TestA, TestB, TestC and 1 more)"}, {"TestA", "(TestB, TestC, TestD)"}, {"TestC", "(TestB, TestD)"},
	} {
		d.read([]byte(`{"Action":"pass","Package":"p","Test":"` + step.ends + `"}`))
		r.last = time.Time{}
		r.still("e2e", time.Minute, d.unfinished())
		lines = append(lines, step.want)
	}
	r.still("e2e", time.Minute, d.unfinished()) // it has just printed a line
	want := "    e2e: goes on, 60 s " + strings.Join(lines, "\n    e2e: goes on, 60 s ") + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
