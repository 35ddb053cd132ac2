package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// quiet is how many processors other programs may keep busy before the report says that the machine was not idle.
const quiet = 0.1

// Markdown writes the run as a page: the setup, the targets, the figures of validating hooks, and the figures of each language. plot
// is the address of the plot beside it. [Run.Tables] writes all figures.
func (r *Run) Markdown(w io.Writer, plot string) error {
	p := &page{run: r, index: r.index()}
	p.linef("# Benchmarks\n")
	p.linef("`make bench` writes this page, [the plot](%s) and [benchmarks.json](benchmarks.json);", plot)
	p.linef("`go run -C test/bench . tables ../../docs/benchmarks.json` prints all figures.")
	p.linef("[Peers](peers.md) has OPA, Gatekeeper and Kyverno beside Portcullis.\n")
	p.setup()
	p.targets()
	p.failures()
	p.summary()
	p.languages()
	return p.write(w)
}

// page is a page that is being written.
type page struct {
	run   *Run
	index index
	text  strings.Builder
}

// linef writes one line.
func (p *page) linef(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

func (p *page) write(w io.Writer) error {
	if _, err := io.WriteString(w, p.text.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// setup describes the run and the machine.
func (p *page) setup() {
	r := p.run
	p.linef("Commit `%s`, %s, %d processors%s, load %s, %s processors kept busy by other programs; %d rounds of %s s a cell.",
		r.Commit, r.Go, r.CPUs, named(r.Processor), number(r.LoadAverage), number(r.Others), r.Rounds, number(r.Duration))
	p.linef("Clients, hooks and Portcullis are one process that talks TLS 1.3 over loopback, except in the tables of languages.\n" +
		"Each hook allows the creation of a Pod.\n")
	if !r.Idle() {
		p.linef("**The machine was not idle: ratios compare like with like, absolute figures are too slow.**\n")
	}
	if r.Note != "" {
		p.linef("**%s**\n", r.Note)
	}
}

// Idle reports whether other programs left the machine to the run.
func (r *Run) Idle() bool { return r.Others <= quiet }

// named puts a name in brackets, if there is one.
func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// targets writes the table of targets: a row for each, with a figure and a verdict for each size of Pod.
func (p *page) targets() {
	p.linef("## Targets\n")
	small, medium := scenario.Scenario{Bytes: scenario.Small}.Size(), scenario.Scenario{Bytes: scenario.Medium}.Size()
	p.linef("| ratio | target | Pod of %s | %s |", small, medium)
	p.linef("|---|---|---|---|")
	judged := p.run.Judge()
	for i := 0; i < len(judged); {
		first := judged[i]
		cells := map[string]string{}
		for ; i < len(judged) && judged[i].Title == first.Title; i++ {
			cells[judged[i].Pod] = fmt.Sprintf("%s %s", judged[i].Measured, judged[i].Verdict)
		}
		p.linef("| %s | %s | %s | %s |", first.Title, first.Bound, cells[small], cells[medium])
	}
	p.linef("")
}

// failures lists the cells that could not be measured.
func (p *page) failures() {
	if len(p.run.Failures) == 0 {
		return
	}
	p.linef("**Not measured:**\n")
	for _, f := range p.run.Failures {
		p.linef("- `%s`: %s", f.Name, strings.Join(strings.Fields(f.Why), " "))
	}
	p.linef("")
}

// summary writes the figures of validating hooks, each on a host of its own, beside kube-apiserver's: throughput and cost at
// full load, times at a tenth of it.
func (p *page) summary() {
	begun := false
	for _, s := range p.run.scenarios() {
		if !isUsual(s) || groupOf(s) != (scenario.Scenario{Stage: scenario.Validate, Bytes: scenario.Small}) {
			continue
		}
		for _, who := range []Contender{Native, Bridge} {
			full := p.index[Cell{s, who, Full}]
			if len(full) == 0 {
				continue
			}
			if !begun {
				p.linef("## One review of a Pod of 2 kB\n")
				p.linef("| hooks | | reviews/s at full load | CPU µs | allocations | p50 µs at a tenth | p99 µs at a tenth |")
				p.linef("|---|---|---|---|---|---|---|")
				begun = true
			}
			tenth := p.index[Cell{s, who, Tenth}]
			p.linef("| %d | %s | %s | %s | %s | %s | %s |", s.Hooks, who, number(figureOf(full, throughput).Median), number(figureOf(full, cpu).Median),
				number(figureOf(full, allocs).Median), number(figureOf(tenth, p50).Median), number(figureOf(tenth, p99).Median))
		}
	}
}
