package main

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string  `json:"Action"`
	Package     string  `json:"Package"`
	ImportPath  string  `json:"ImportPath"` // of build-output and build-fail
	Test        string  `json:"Test"`
	Elapsed     float64 `json:"Elapsed"` // s
	Output      string  `json:"Output"`
	FailedBuild string  `json:"FailedBuild"`
}

// test is how a test without a parent, or a package as a whole, has ended. Test is empty for a package.
type test struct {
	pkg, name string
	outcome   string // pass, fail or skip
	took      time.Duration
	// output has the lines that it has printed, with its subtests; why is the reason of a skip.
	output []string
	why    string
}

// failedOutput bounds the lines that are kept of one test, from its end: the log of the step has them all.
const failedOutput = 400

// digest reads the events of one run of go test. It keeps the output of tests that have not ended and of those that failed.
type digest struct {
	mu      sync.Mutex       // held by read
	running map[string]*test // by package and name of test
	ended   []test           // tests without a parent
	broken  []test           // packages that failed without a failed test, or did not compile; with a test that has not ended, if any
	failed  map[string]bool  // packages in which a test failed
	builds  map[string][]string
	total   int // packages that have ended
}

func newDigest() *digest {
	return &digest{running: map[string]*test{}, failed: map[string]bool{}, builds: map[string][]string{}}
}

// read takes one line. It returns the test or package that has ended with it, if any; ok is false for a line that is no event.
func (d *digest) read(line []byte) (e event, ended *test, ok bool) {
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil {
		return e, nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Action {
	case "output", "build-output":
		d.print(&e)
	case "pass", "fail", "skip":
		return e, d.end(&e), true
	case "run":
		d.of(&e)
	}
	return e, nil, true
}

// unfinished are the names of the tests that run, in order. It may be called while another goroutine reads.
func (d *digest) unfinished() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.running {
		if t.name != "" {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

// print keeps the output of a test, of a package, or of a build.
func (d *digest) print(e *event) {
	if e.Action == "build-output" {
		d.builds[e.ImportPath] = append(d.builds[e.ImportPath], e.Output)
		return
	}
	t := d.of(e)
	if t.output = append(t.output, e.Output); len(t.output) > failedOutput {
		t.output = t.output[len(t.output)-failedOutput:]
	}
}

// of is the running test that an event is about: its parent for a subtest.
func (d *digest) of(e *event) *test {
	name, _, _ := strings.Cut(e.Test, "/")
	key := e.Package + " " + name
	if d.running[key] == nil {
		d.running[key] = &test{pkg: e.Package, name: name}
	}
	return d.running[key]
}

// end ends a test without a parent, or a package; nil for a subtest.
func (d *digest) end(e *event) *test {
	if strings.Contains(e.Test, "/") {
		return nil
	}
	t := d.of(e)
	delete(d.running, e.Package+" "+e.Test)
	t.outcome, t.took = e.Action, time.Duration(e.Elapsed*float64(time.Second))
	switch {
	case e.Test == "":
		d.endPackage(t, e.FailedBuild)
	case t.outcome == "fail":
		d.failed[t.pkg] = true
		d.ended = append(d.ended, *t)
	default:
		t.why = reason(t)
		t.output = nil
		d.ended = append(d.ended, *t)
	}
	return t
}

// endPackage counts a package, and keeps a failed package none of whose tests is known to have failed.
func (d *digest) endPackage(t *test, failedBuild string) {
	d.total++
	if t.outcome != "fail" || d.failed[t.pkg] {
		return
	}
	if failedBuild != "" {
		t.output = append(d.builds[failedBuild], t.output...)
	}
	for _, unfinished := range d.running { // by a crash or a time-out
		if unfinished.pkg == t.pkg && unfinished.name != "" {
			t.name = unfinished.name
			t.output = append(t.output, unfinished.output...)
		}
	}
	d.broken = append(d.broken, *t)
}

// reason is the last line that a skipped test printed itself, without file and line.
func reason(t *test) string {
	if t.outcome != "skip" {
		return ""
	}
	for _, line := range slices.Backward(t.output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if _, text, found := strings.Cut(line, ": "); found && strings.Contains(line, ".go:") {
			return text
		}
		return line
	}
	return "it does not say why"
}
