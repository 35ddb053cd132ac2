package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// slowest is how many tests a report lists by time.
const slowest = 30

// report is the end of a circle. A command that is no run of go test counts as one test.
type report struct {
	circle                  string
	results                 []*result
	took                    time.Duration
	passed, failed, skipped int
	reasons                 map[string]int // of skipped tests
}

func newReport(circle string, results []*result, took time.Duration) *report {
	r := &report{circle: circle, results: results, took: took, reasons: map[string]int{}}
	for _, res := range results {
		passed, failed, skipped := res.numbers()
		r.passed, r.failed, r.skipped = r.passed+passed, r.failed+failed, r.skipped+skipped
		for _, t := range res.digest.ended {
			if t.outcome == "skip" {
				r.reasons[kindOf(t.why)]++
			}
		}
	}
	return r
}

// kindOf is the reason of a skip, without the details of a test that is left to a larger circle.
func kindOf(why string) string {
	if left, _, found := strings.Cut(why, ": "); found && strings.HasPrefix(why, "left to the ") {
		return left
	}
	return why
}

// numbers counts the tests of a step.
func (r *result) numbers() (passed, failed, skipped int) {
	for _, t := range r.digest.ended {
		switch t.outcome {
		case "pass":
			passed++
		case "fail":
			failed++
		default:
			skipped++
		}
	}
	failed += len(r.digest.broken)
	switch {
	case r.err != nil && failed == 0:
		failed++
	case r.step.Tests == nil && r.err == nil:
		passed++
	}
	return passed, failed, skipped
}

func (r *result) counts() string {
	passed, failed, skipped := r.numbers()
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

// failures are the tests, packages and commands that failed.
func (r *result) failures() []test {
	var failures []test
	for _, t := range r.digest.ended {
		if t.outcome == "fail" {
			failures = append(failures, t)
		}
	}
	failures = append(failures, r.digest.broken...)
	if r.err != nil && len(failures) == 0 {
		failures = append(failures, test{name: r.step.Name, output: []string{strings.Join(r.tail, "\n"), "\n", r.err.Error(), "\n"}})
	}
	return failures
}

// summary is the end of the output. Its last line has all numbers.
func (r *report) summary(file string) string {
	var b strings.Builder
	fmt.Fprintln(&b)
	for _, res := range r.results {
		for _, t := range res.failures() {
			fmt.Fprintf(&b, "FAILED  %s: %s\n", res.step.Name, t.title())
		}
	}
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(&b, "skipped %4d: %s\n", r.reasons[why], why)
	}
	outcome := "passed"
	if r.failed > 0 {
		outcome = "FAILED"
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed, %d skipped\n", r.circle, r.passed, r.failed, r.skipped)
	fmt.Fprintf(&b, "%s %s in %v: %d passed, %d failed, %d skipped; %s\n",
		r.circle, outcome, r.took.Round(time.Second), r.passed, r.failed, r.skipped, file)
	return b.String()
}

// markdown is the report for people who come later.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %d passed, %d failed, %d skipped in %v\n\n| step | result | s | tests |\n|---|---|---|---|\n",
		r.circle, r.passed, r.failed, r.skipped, r.took.Round(time.Second))
	for _, res := range r.results {
		outcome := "ok"
		if res.err != nil {
			outcome = "FAILED: " + res.err.Error()
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %s |\n", res.step.Name, outcome, res.took.Seconds(), res.counts())
	}
	for _, res := range r.results {
		for _, t := range res.failures() {
			fmt.Fprintf(&b, "\n## FAILED %s: %s\n\nAgain: `%s`\n\n```\n%s```\n", res.step.Name, t.title(), res.step.again(t), strings.Join(t.output, ""))
		}
	}
	r.slow(&b)
	b.WriteString("\n## Skipped\n\n| tests | why |\n|---|---|\n")
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(&b, "| %d | %s |\n", r.reasons[why], why)
	}
	return b.String()
}

// slow lists the slowest tests.
func (r *report) slow(b *strings.Builder) {
	var all []test
	for _, res := range r.results {
		all = append(all, res.digest.ended...)
	}
	slices.SortStableFunc(all, func(a, b test) int { return cmp.Compare(b.took, a.took) })
	b.WriteString("\n## Slowest tests\n\n| s | test |\n|---|---|\n")
	for _, t := range all[:min(slowest, len(all))] {
		fmt.Fprintf(b, "| %.1f | %s |\n", t.took.Seconds(), t.title())
	}
}

// again is the command that repeats one test. The output of a random test names its seed or case, which does not change from run to run.
func (s step) again(t test) string {
	if s.Tests == nil || t.pkg == "" {
		return s.title()
	}
	command := append(slices.Clone(s.Env), "go", "test", "-C", s.Dir)
	for _, arg := range s.Tests {
		if strings.HasPrefix(arg, "-") {
			command = append(command, arg)
		}
	}
	if t.name != "" {
		command = append(command, "-run", "'^"+t.name+"$'")
	}
	return strings.Join(append(command, t.pkg), " ")
}
