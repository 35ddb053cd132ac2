package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Tables writes every figure of the run, in Markdown.
func (r *Run) Tables(w io.Writer) error {
	p := &page{run: r, index: r.index()}
	p.tablesHead()
	p.failures()
	for _, load := range []Load{Full, Tenth} {
		p.load(load)
	}
	p.unusual()
	p.languages()
	p.tenancies()
	p.crowds()
	return p.write(w)
}

// tablesHead explains the contenders, the loads and the cells.
func (p *page) tablesHead() {
	p.linef("# All measurements of `%s`\n", p.run.Commit)
	p.setup()
	p.linef(`
| | |
|---|---|
| kube-apiserver | the webhook plugins of k8s.io/apiserver, from the decoded object on; the hooks parse nothing |
| bridge | Portcullis, asked in JSON over HTTPS; hosts made with the Go SDK, which run a handler for each call |
| bridge, HTTP/2 | the same, over one connection of HTTP/2, as API servers call a localhost URL |
| dispatcher | the same, asked by its Go API |
| bare hosts | the same, with hosts that read the number of a call and allow it: the dispatcher without the SDK |
| webhooks | the same, with hooks that the dispatcher calls over HTTPS; they parse nothing |
| webhooks, adapted | the same webhooks without TLS on a unix socket, behind hosts that forward the calls, made with package adapt |
| stream limit | the encoded review sent to each host over a gRPC stream, and an answer of a verdict's size; neither is parsed |
| HTTPS limit | one HTTPS round trip with the review; it is not parsed, and no hook is called |

Cells that are compared are measured in turns, so that other load of the machine falls on all of them. A figure is the median
of the rounds, with the distance of the farthest round; a ratio is the median of the ratios of the rounds.

At full throughput a search finds the number of callers after which throughput no longer grows; each caller sends its next review
when the last one is answered. Compare p50 and p99 at one tenth: there reviews are sent at a fixed rate, a tenth of the contender's
own full throughput. The CPU of the sender's timers is included. A review that does nothing costs the harness %s µs.

A cell is the figure of one review (time, CPU of both ends, allocations of both ends), and in brackets its ratio to kube-apiserver
and to its limit: the stream limit for the dispatcher, one HTTPS round trip and then the streams for the bridge.
`, number(p.run.Harness.CPU))
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

// names are the names of the metrics.
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

// cells are the figures of a row. Times of a full load and the throughput of others are compared with nothing: they
// follow from the number of callers and the rate.
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
			if x.Scenario != s || isUsual(s) || s.Language != "" {
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
