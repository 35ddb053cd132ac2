package report

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// timesFramework bounds the reviews of a host by the reviews of a webhook with the same processor time. timesBare bounds its time by the
	// time of a bare host that looks at nothing either.
	timesFramework, timesBare = 5, 1.3
	// busy is how many reviews are in flight where these are judged.
	busy = 64
)

// frameworks are the usual frameworks for webhooks in a language.
func frameworks() map[string]string {
	return map[string]string{
		"go": "controller-runtime", "python": "FastAPI, uvicorn", "typescript": "Fastify", "java": "Spring Boot, Tomcat", "rust": "axum, rustls",
	}
}

// spoken is the cell of a language.
func spoken(language string, deleting bool, load Load) sized {
	return func(bytes int, who Contender) Cell {
		return Cell{scenario.Policy(language, bytes, deleting), who, load}
	}
}

// languageTargets bound the cost of the hosts of each language.
func languageTargets(sizes []int) []target {
	var all []target
	for _, deleting := range []bool{false, true} {
		for _, l := range scenario.Languages() {
			cell := spoken(l, deleting, InFlight(busy))
			all = append(all, target{
				title: fmt.Sprintf("host in %s that %s, %s: reviews per CPU second of its process, times those of a webhook with %s",
					l, looks(deleting), InFlight(busy), frameworks()[l]),
				bound: timesFramework, least: true, sizes: sizes, of: onlyDispatcher(compared(cell.of(Framework), cell.of(Host), processCPU)),
			})
		}
	}
	cell := spoken("go", true, InFlight(busy))
	return append(all, target{
		title: fmt.Sprintf("host made with the Go SDK that looks at no Pod, %s: CPU of its process, times that of a bare host", InFlight(busy)),
		bound: timesBare, sizes: sizes, of: onlyDispatcher(compared(cell.of(Host), cell.of(Bare), processCPU)),
	})
}

// looks describes the policy's work on a Pod.
func looks(deleting bool) string {
	if deleting {
		return "looks at no Pod"
	}
	return "parses the Pod"
}

// languages writes a table for each language that was measured.
func (p *page) languages() {
	begun := false
	for _, l := range scenario.Languages() {
		rows := p.spoken(l)
		if len(rows) == 0 {
			continue
		}
		if !begun {
			p.linef("\n## A host and a webhook in each language\n")
			p.linef(`The policy of examples/imagepolicy in a process of its own: as a host made with the SDK, asked by the dispatcher, and as a webhook in the
framework that is usual in the language, asked over HTTP/1.1 with TLS and kept connections, as API servers ask the webhook of a Service.
It looks at the images of a Pod that is created, which both parse. Of a Pod that is deleted it looks at nothing: a host does not parse it,
and a webhook parses it with the review, except in Go and Rust, whose types leave it alone. CPU is that of their process for one review, in
µs; “times” is the webhook's divided by the host's, the median of the rounds. That of the dispatcher has the measuring in it.`)
			begun = true
		}
		p.linef("\n### %s: %s\n", l, frameworks()[l])
		p.linef("| Pod | in flight | reviews/s of the host | of the webhook | CPU of the host | of the webhook | times | of the dispatcher |%s", bareTitle(l))
		p.linef("|---|---|---|---|---|---|---|---|%s", strings.Repeat("---|", strings.Count(bareTitle(l), "|")))
		for _, row := range rows {
			p.linef("%s", row)
		}
	}
}

// bareTitle is the title of the column that only Go has.
func bareTitle(language string) string {
	if language == "go" {
		return " of a bare host |"
	}
	return ""
}

// spoken are the rows of a language.
func (p *page) spoken(language string) []string {
	var rows []string
	for _, deleting := range []bool{false, true} {
		for _, bytes := range []int{scenario.Small, scenario.Medium} {
			for _, load := range InFlights() {
				if row := p.spokenRow(language, spoken(language, deleting, load), bytes); row != "" {
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// spokenRow is the row of a language; empty if it was not measured.
func (p *page) spokenRow(language string, cell sized, bytes int) string {
	rounds := func(who Contender) []measure.Sample { return p.index[cell(bytes, who)] }
	median := func(who Contender, of func(measure.Sample) float64) string {
		return number(figureOf(rounds(who), of).Median)
	}
	if len(rounds(Host)) == 0 && len(rounds(Framework)) == 0 {
		return ""
	}
	c := cell(bytes, Host)
	pod := c.Size() + " created"
	if c.Deleting {
		pod = c.Size() + " deleted"
	}
	row := fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s |", pod, c.Load.Callers(), median(Host, throughput), median(Framework, throughput),
		median(Host, processCPU), median(Framework, processCPU), ratioOf(rounds(Framework), rounds(Host), processCPU), median(Host, cpu))
	if language == "go" {
		row += fmt.Sprintf(" %s |", median(Bare, processCPU))
	}
	return row
}
