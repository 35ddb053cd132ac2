package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// Markdown writes the run as a page. plot is the address of the plot beside it.
func (r *Run) Markdown(w io.Writer, plot string) error {
	p := &page{run: r, index: r.index()}
	p.head(plot)
	p.targets()
	for _, load := range []Load{Full, Tenth} {
		p.load(load)
	}
	if _, err := io.WriteString(w, p.text.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// page is a page that is being written.
type page struct {
	run   *Run
	index map[key]measure.Sample
	text  strings.Builder
}

// linef writes one line.
func (p *page) linef(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// head says what was measured, and how the tables are read.
func (p *page) head(plot string) {
	p.linef("# Benchmarks\n")
	p.linef("Written by `make bench`; do not edit. Commit `%s`, %s, %d processors%s, %s s a measurement.\n",
		p.run.Commit, p.run.Go, p.run.CPUs, named(p.run.Processor), number(p.run.Duration))
	if p.run.Note != "" {
		p.linef("**%s**\n", p.run.Note)
	}
	p.linef("![Reviews per second](%s)\n", plot)
	p.linef(`All of it is one run of one process on one machine, over TLS 1.3 on loopback. Clients, hooks and what is between them share
the processors, and their cost is in the figures. A review creates a Pod, and every hook allows it.

| | |
|---|---|
| kube-apiserver | the webhook plugins of k8s.io/apiserver, from the decoded object on; the hooks parse nothing |
| bridge | Portcullis, asked in JSON over HTTPS; hosts made with the Go SDK, which decode |
| dispatcher | the same, asked by its Go API |
| stream limit | the encoded review sent to each host over a gRPC stream, and an answer of a verdict's size; nobody looks into either |
| HTTPS limit | one HTTPS round trip with the review; nobody parses it, and no hook is asked |

At full throughput each has as many callers as suit it best (of 2, 8 and 32), who send their next review when the last is
answered: p50 and p99 grow with their number, and are to be compared at one tenth. At one tenth of its own full throughput
reviews are sent at a fixed rate, whether or not the ones before are answered; that the sender wakes for each of them is in
the CPU.

A cell is the figure of one review (time, CPU of both ends, allocations of both ends), and in brackets how many times
kube-apiserver's own it is, and how many times its limit: that of the dispatcher is the stream limit, that of the bridge one
HTTPS round trip and then the streams. In throughput more is better, in everything else less.
`)
}

// named puts a name in brackets, if there is one.
func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// load writes the tables of one load.
func (p *page) load(load Load) {
	title := "Full throughput"
	if load == Tenth {
		title = "One tenth of each one's own full throughput"
	}
	begun := false
	for _, group := range p.groups() {
		rows := p.rows(group, load)
		if len(rows) == 0 {
			continue
		}
		if !begun {
			p.linef("## %s\n", title)
			begun = true
		}
		p.linef("### %s, Pod of %s, %s\n", group.Stage, group.Size(), placement(group))
		p.linef("| hooks | | %s |", strings.Join(names(), " | "))
		p.linef("|---|---|%s", strings.Repeat("---|", len(names())))
		p.linef("%s\n", strings.Join(rows, "\n"))
	}
}

// names are those of the metrics.
func names() []string {
	var all []string
	for _, m := range Metrics() {
		all = append(all, m.Name)
	}
	return all
}

// placement says where the hooks of a group are.
func placement(group scenario.Scenario) string {
	if group.Hosts == 1 {
		return "all hooks on one host"
	}
	return "each hook on a host of its own"
}

// groups are the tables: the scenarios without their number of hooks. Hosts is 1 for all hooks on one host, else 0.
func (p *page) groups() []scenario.Scenario {
	var all []scenario.Scenario
	seen := map[scenario.Scenario]bool{}
	for _, x := range p.run.Results {
		if g := groupOf(x.Scenario); !seen[g] {
			seen[g] = true
			all = append(all, g)
		}
	}
	return all
}

// groupOf is the group of a scenario. One hook is always on a host of its own.
func groupOf(s scenario.Scenario) scenario.Scenario {
	g := scenario.Scenario{Stage: s.Stage, Bytes: s.Bytes}
	if s.Hosts < s.Hooks {
		g.Hosts = 1
	}
	return g
}

// rows are the rows of a table.
func (p *page) rows(group scenario.Scenario, load Load) []string {
	var rows []string
	for _, s := range p.run.scenarios() {
		if groupOf(s) != group {
			continue
		}
		for _, who := range Contenders() {
			if sample, ok := p.index[key{s, who, load}]; ok {
				rows = append(rows, fmt.Sprintf("| %d | %s | %s |", s.Hooks, who, p.cells(s, who, load, sample)))
			}
		}
	}
	return rows
}

// cells are the figures of a row.
func (p *page) cells(s scenario.Scenario, who Contender, load Load, sample measure.Sample) string {
	at := func(who Contender) (measure.Sample, bool) {
		x, ok := p.index[key{s, who, load}]
		return x, ok
	}
	native, hasNative := at(Native)
	best, hasLimit := limit(who, at)
	var cells []string
	for _, m := range Metrics() {
		var ratios []string
		if hasNative && who != Native {
			ratios = append(ratios, number(ratio(m.Of(sample), m.Of(native))))
		}
		if hasLimit {
			ratios = append(ratios, number(ratio(m.Of(sample), m.Of(best))))
		}
		cell := number(m.Of(sample))
		if len(ratios) > 0 {
			cell += " (" + strings.Join(ratios, ", ") + ")"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, " | ")
}

// scenarios are those of the run, in order.
func (r *Run) scenarios() []scenario.Scenario {
	var all []scenario.Scenario
	seen := map[scenario.Scenario]bool{}
	for _, x := range r.Results {
		if !seen[x.Scenario] {
			seen[x.Scenario] = true
			all = append(all, x.Scenario)
		}
	}
	return all
}
