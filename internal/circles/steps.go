package main

import (
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// step is one command of a circle: a run of go test if Tests is set, and else a command that succeeds or fails.
type step struct {
	// Name names it in progress, logs and reports, and selects it on the command line.
	Name string
	// Dir is the directory of the module or command, from the root of the repository.
	Dir string
	// Tests are the arguments of go test, flags and packages.
	Tests []string
	// Command is run where Tests is empty.
	Command []string
	// Env is added to the environment, as NAME=VALUE.
	Env []string
	// EachTest prints a line for each test and not for each package.
	EachTest bool
}

// stage are steps that run side by side.
type stage []step

// packages are the packages of the root module that have tests.
type packages struct {
	// pure have no goroutine, channel or lock; concurrent have one.
	pure, concurrent []string
}

// packagesOf divides the packages of the graph's module, without the modules below its root.
func packagesOf(g *archtest.Graph, concurrent []string) packages {
	var p packages
	for path, pkg := range g.Packages {
		rel, own := strings.CutPrefix(path, g.Module+"/")
		if !own || len(pkg.TestGoFiles)+len(pkg.XTestGoFiles) == 0 || slices.ContainsFunc(parts(), func(part string) bool {
			return rel == part || strings.HasPrefix(rel, part+"/")
		}) {
			continue
		}
		if slices.Contains(concurrent, path) {
			p.concurrent = append(p.concurrent, "./"+rel)
		} else {
			p.pure = append(p.pure, "./"+rel)
		}
	}
	slices.Sort(p.pure)
	slices.Sort(p.concurrent)
	return p
}

// parts are the directories of the modules that hosts link, each tested with the versions that it requires at least (docs/design/0035-modules.md).
func parts() []string { return []string{"gen/portcullis", "internal/wire", "hostsdk", "hostsdk/kube"} }

// stagesOf is the table of the circles: nil if there is none of this name.
func stagesOf(circle string, p packages) []stage {
	switch circle {
	case "test":
		return testStages()
	case "gate":
		return gateStages(p)
	case "soak":
		return soakStages()
	default:
		return nil
	}
}

// longest is the package whose tests take longest: go test starts packages in the order of its arguments, and names each once.
const longest = "./cmd/portcullis/internal/serve"

// sideBySide lets more packages, and tests of one package, run at once than there are cores of a small machine: they wait for servers.
func sideBySide() []string { return []string{"-p=3", "-parallel=4"} }

// testStages show that a checkout works, with Go, git, make and a C compiler alone.
func testStages() []stage {
	short := append([]string{"-short", "-count=1"}, ".", "./build", "./kube", "./pki", "./process") // the others leave all tests to the gate
	return []stage{
		{
			{Name: "unit", Dir: ".", Tests: append(sideBySide(), "-short", longest, "./...")},
			{Name: "e2e", Dir: "test/e2e", Tests: short, EachTest: true}, // waits for servers while unit computes
		},
		partStage("-short"),
	}
}

// gateStages are the stages that `.ci/run` runs after the circle test.
func gateStages(p packages) []stage {
	return []stage{
		{{Name: "unit-race", Dir: ".", Tests: slices.Concat(sideBySide(), []string{"-race", longest}, p.concurrent)}},
		partStage("-race"),
		{
			{Name: "browser", Dir: ".", Command: []string{".ci/browser"}},
			{Name: "e2e-vet", Dir: "test/e2e", Command: []string{"go", "vet", "./..."}}, // compiles once for both shards
		},
		{
			{Name: "e2e-1", Dir: "test/e2e", Tests: []string{"-count=1", "."}, Env: []string{"E2E_SHARD=1/2"}, EachTest: true},
			{Name: "e2e-2", Dir: "test/e2e", Tests: []string{"-count=1", "."}, Env: []string{"E2E_SHARD=2/2"}, EachTest: true},
			{Name: "unit-pure", Dir: ".", Tests: p.pure}, // the shards wait for a quarter of their time
		},
		{
			{Name: "e2e-other", Dir: "test/e2e", EachTest: true, Tests: []string{
				"-count=1", "-p=1", "./build", "./console", "./controllerruntime", "./hostile", "./kube", "./netns", "./peers", "./pki",
				"./process",
			}},
			{Name: "chart", Dir: "deploy/render", Tests: []string{"-count=1", "./..."}}, // e2e-other waits for half of its time
			{Name: "monitoring", Dir: "deploy/monitoring", Tests: []string{"-count=1", "./..."}},
			{Name: "bench", Dir: "test/bench", Tests: []string{"./..."}},
		},
		{makeStep("sdks")},
		{makeStep("lint")},
		{makeStep("checkgenerate")},
		{makeStep("breaking")},
	}
}

// soakStages are all tests with their largest counts, one step after the other.
func soakStages() []stage {
	soak := []string{citest.SoakVariable + "=1"}
	long := []string{"-timeout=12h", "-count=1", "-race"}
	stages := []stage{{{Name: "unit", Dir: ".", Tests: append(long, "./..."), Env: soak}}}
	for _, part := range parts() {
		stages = append(stages, stage{{Name: strings.ReplaceAll(part, "/", "-"), Dir: part, Tests: append(long, "./..."), Env: soak}})
	}
	all := []string{soak[0], "ALL=1"}
	sdks := makeStep("sdks") // before e2e and bench, which start its hosts
	sdks.Env = all
	stages = append(stages, stage{sdks}, stage{{Name: "browser", Dir: ".", Command: []string{".ci/browser"}}})
	for _, module := range []string{"test/e2e", "deploy/render", "deploy/monitoring"} {
		stages = append(stages, stage{{
			Name: strings.ReplaceAll(module, "/", "-"), Dir: module, Env: soak, EachTest: module == "test/e2e",
			Tests: []string{"-timeout=12h", "-count=1", "-p=1", "./..."},
		}})
	}
	for _, target := range []string{"benchtest", "images", "fuzz", "lint", "checkgenerate", "breaking"} {
		s := makeStep(target)
		s.Env = all
		stages = append(stages, stage{s})
	}
	return append(stages, stage{{Name: "mutants", Dir: ".", Command: []string{"tools/mutants/run", "--circle", "gate"}}})
}

// partStage tests the modules that hosts link, side by side: much of their time is spent waiting.
func partStage(flag string) (s stage) {
	for _, part := range parts() {
		s = append(s, step{Name: strings.ReplaceAll(part, "/", "-"), Dir: part, Tests: []string{flag, "./..."}})
	}
	return s
}

// makeStep is a target of the Makefile.
func makeStep(target string) step {
	return step{Name: target, Dir: ".", Command: []string{"make", target}}
}
