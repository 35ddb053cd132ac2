package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// quiet is how many processors others may keep busy before the report says that the machine was not idle.
const quiet = 0.1

// Markdown writes the run as a page. plot is the address of the plot beside it.
func (r *Run) Markdown(w io.Writer, plot string) error {
	p := &page{run: r, index: r.index()}
	p.head(plot)
	p.targets()
	p.failures()
	for _, load := range []Load{Full, Tenth} {
		p.load(load)
	}
	p.unusual()
	p.tenancies()
	p.crowds()
	if _, err := io.WriteString(w, p.text.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// page is a page that is being written.
type page struct {
	run   *Run
	index index
	text  strings.Builder
}

// linef writes one line.
func (p *page) linef(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// head says what was measured, and how the tables are read.
func (p *page) head(plot string) {
	r := p.run
	p.linef("# Benchmarks\n")
	p.linef("Written by `make bench`; do not edit. Commit `%s`, %s, %d processors%s; each cell %s s in %d rounds.\n",
		r.Commit, r.Go, r.CPUs, named(r.Processor), number(r.Duration), r.Rounds)
	p.linef("Load average before the run: %s. Other programs kept %s processors busy during it.\n", number(r.LoadAverage), number(r.Others))
	if !r.Idle() {
		p.linef("**The machine was not idle: ratios of one round still compare like with like, all other figures are too slow.**\n")
	}
	if r.Note != "" {
		p.linef("**%s**\n", r.Note)
	}
	p.linef("![Reviews per second](%s)\n", plot)
	p.linef(`All of it is one run of one process on one machine, over TLS 1.3 on loopback. Clients, hooks and what is between them share
the processors, and their cost is in the figures. A review creates a Pod, and every hook allows it.

| | |
|---|---|
| kube-apiserver | the webhook plugins of k8s.io/apiserver, from the decoded object on; the hooks parse nothing |
| bridge | Portcullis, asked in JSON over HTTPS; hosts made with the Go SDK, which run a handler for each call |
| dispatcher | the same, asked by its Go API |
| bare hosts | the same, with hosts that find out which call a frame is, and allow: the dispatcher without the SDK |
| stream limit | the encoded review sent to each host over a gRPC stream, and an answer of a verdict's size; nobody looks into either |
| HTTPS limit | one HTTPS round trip with the review; nobody parses it, and no hook is asked |

Cells that are compared are measured in turns, so that what else happens on the machine falls on all of them. A figure is the
median of the rounds, and behind it how far the farthest round is from it; a ratio is the median of the ratios of the rounds.

At full throughput there are as many callers, each of whom sends the next review when the last is answered, as a search finds
after which the throughput does not grow: p50 and p99 are what their number makes them, and are to be compared at one tenth.
At one tenth of its own full throughput reviews are sent at a fixed rate, whether or not the ones before are answered; that
the sender wakes for each of them is in the CPU. A review that does nothing costs the harness %s µs.

A cell is the figure of one review (time, CPU of both ends, allocations of both ends), and in brackets how many times
kube-apiserver's own it is, and how many times its limit: that of the dispatcher is the stream limit, that of the bridge one
HTTPS round trip and then the streams. In throughput more is better, in everything else less.
`, number(r.Harness.CPU))
}

// Idle reports whether nothing else of weight ran beside.
func (r *Run) Idle() bool { return r.Others <= quiet }

// named puts a name in brackets, if there is one.
func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// targets writes the table of targets.
func (p *page) targets() {
	p.linef("## Targets\n")
	p.linef("| ratio | target | Pod | measured | | with bare hosts |")
	p.linef("|---|---|---|---|---|---|")
	for _, j := range p.run.Judge() {
		p.linef("| %s | %s | %s | %s | %s | %s |", j.What, j.Bound, j.Pod, j.Measured, j.Verdict, j.Bare)
	}
	p.linef("")
}

// failures says what could not be measured.
func (p *page) failures() {
	if len(p.run.Failures) == 0 {
		return
	}
	p.linef("**What could not be measured**, and stands nowhere below:\n")
	for _, f := range p.run.Failures {
		p.linef("- `%s`: %s", f.Name, strings.Join(strings.Fields(f.Why), " "))
	}
	p.linef("")
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
		p.linef("| hooks | | callers | %s |", strings.Join(names(), " | "))
		p.linef("|---|---|---|%s", strings.Repeat("---|", len(names())))
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

// groups are the tables: the usual scenarios without their number of hooks. Hosts is 1 for all hooks on one host, else 0.
func (p *page) groups() []scenario.Scenario {
	var all []scenario.Scenario
	seen := map[scenario.Scenario]bool{}
	for _, s := range p.run.scenarios() {
		if g := groupOf(s); isUsual(s) && !seen[g] {
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
		if !isUsual(s) || groupOf(s) != group {
			continue
		}
		for _, who := range Contenders() {
			c := Cell{s, who, load}
			if rounds := p.index[c]; len(rounds) > 0 {
				rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s |", s.Hooks, who, callers(rounds), p.cells(c, rounds)))
			}
		}
	}
	return rows
}

// callers is how many there were.
func callers(rounds []measure.Sample) string {
	if rounds[0].Callers == 0 {
		return ""
	}
	return fmt.Sprint(rounds[0].Callers)
}

// cells are the figures of a row. Times of a full load and the throughput of others are compared with nothing: they are
// what the number of callers and the rate make them.
func (p *page) cells(c Cell, rounds []measure.Sample) string {
	native := c
	native.Contender = Native
	var cells []string
	for _, m := range Metrics() {
		var ratios []string
		if base := p.index[native]; len(base) > 0 && c.Contender != Native && m.compares(c.Load) {
			ratios = append(ratios, number(ratioOf(rounds, base, m.Of).Median))
			if limit := p.index.limitOf(c); len(limit) > 0 {
				ratios = append(ratios, number(ratioOf(rounds, limit, m.Of).Median))
			}
		}
		f := figureOf(rounds, m.Of)
		cell := strings.TrimSpace(number(f.Median) + " " + f.spread())
		if len(ratios) > 0 {
			cell += " (" + strings.Join(ratios, ", ") + ")"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, " | ")
}

// unusual writes the table of the scenarios that not everybody is compared in.
func (p *page) unusual() {
	begun := false
	for _, s := range p.run.scenarios() {
		for _, x := range p.run.Results {
			if x.Scenario != s || isUsual(s) {
				continue
			}
			if !begun {
				p.linef("## Hooks that patch, take their time, have slow replicas, or do not match\n")
				p.linef("“Alone” is one caller, one review after the other; “steady” is a fixed rate. A hook that takes its time\n" +
					"waits, and does not ask whether the call is still wanted.\n")
				p.linef("| scenario | | load | %s | calls of hooks |", strings.Join(names(), " | "))
				p.linef("|---|---|---|%s---|", strings.Repeat("---|", len(names())))
				begun = true
			}
			p.linef("| %s | %s | %s | %s | %s |", s, x.Contender, x.Load, p.cells(x.Cell, x.Rounds), number(figureOf(x.Rounds, calls).Median))
		}
	}
	if begun {
		p.linef("")
	}
}

// crowds writes the table of crowds.
func (p *page) crowds() {
	if len(p.run.Crowds) == 0 {
		return
	}
	p.linef("## Many sessions and hooks in one dispatcher\n")
	p.linef(`Hosts are in another process on the same machine, which is bare: the memory is the dispatcher's alone. Each has one session
with one hook; 8 of the hooks match the review. Updates put the same configuration into force again, one after the other.
`)
	p.linef("| sessions | hooks | all in rotation after | memory of a session: heap (objects), stacks | goroutines | processors at rest | " +
		"sessions lost | reviews/s | during updates | an update: compiling, telling sessions |")
	p.linef("|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range p.run.Crowds {
		p.linef("| %d | %d | %s | %s kB: %s (%s), %s | %s | %s | %d | %s | %s | %s, %s |", c.Sessions, c.Hooks, c.Connect.Round(10*time.Millisecond),
			number(c.PerSession()/1000), number(c.Heap/1000), number(c.Live/1000), number(c.Stacks/1000), number(c.Goroutines),
			number(c.Rest), c.Lost, c.Still, c.Updated, c.Compiling.Round(10*time.Microsecond), c.Spreading.Round(10*time.Microsecond))
	}
	p.linef("")
}
