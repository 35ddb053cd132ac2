package report

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

const (
	// timesFramework is how many reviews a host has to answer for each of a webhook with the same time of processors, and timesBare how much
	// more of it than a bare host one may take that looks into nothing either.
	timesFramework, timesBare = 5, 1.3
	// busy is how many reviews are in flight where these are judged.
	busy = 64
)

// frameworks are what webhooks are usually written with in a language.
func frameworks() map[string]string {
	return map[string]string{
		"go": "controller-runtime", "python": "FastAPI, uvicorn", "typescript": "Fastify", "java": "Spring Boot, Tomcat", "rust": "axum, rustls",
	}
}

// spoken is the cell of a language.
func spoken(language string, load Load) sized {
	return func(bytes int, who Contender) Cell { return Cell{scenario.Policy(language, bytes), who, load} }
}

// languageTargets say what the hosts of each language cost.
func languageTargets(sizes []int) []target {
	var all []target
	for _, l := range scenario.Languages() {
		cell := spoken(l, InFlight(busy))
		all = append(all, target{
			what:  fmt.Sprintf("host in %s, %s: reviews per CPU second of its process, times those of a webhook with %s", l, InFlight(busy), frameworks()[l]),
			bound: timesFramework, least: true, sizes: sizes, of: onlyDispatcher(compared(cell.of(Framework), cell.of(Host), processCPU)),
		})
	}
	cell := spoken("go", InFlight(busy))
	return append(all, target{
		what:  fmt.Sprintf("host made with the Go SDK that looks into nothing, %s: CPU of its process, times that of a bare host", InFlight(busy)),
		bound: timesBare, sizes: sizes, of: onlyDispatcher(compared(cell.of(Allow), cell.of(Bare), processCPU)),
	})
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
			p.linef(`
## A host and a webhook in each language

The policy of examples/imagepolicy in a process of its own: as a host made with the SDK, asked by the dispatcher, and as a webhook in the
framework that is usual in the language, asked over HTTP/1.1 with TLS and kept connections, as API servers ask the webhooks of a Service.
Both parse the Pod and allow it. CPU is that of their process for one review; "times" is the webhook's divided by the host's, the median of
the rounds. The dispatcher's is that of the dispatcher and the measuring beside it.`)
			begun = true
		}
		p.linef("\n### %s: %s\n", l, frameworks()[l])
		p.linef("| Pod | in flight | host: reviews/s | webhook: reviews/s | host: CPU µs | webhook: CPU µs | times | dispatcher: CPU µs |%s", bareTitle(l))
		p.linef("|---|---|---|---|---|---|---|---|%s", bareRule(l))
		for _, row := range rows {
			p.linef("%s", row)
		}
	}
}

// bareTitle and bareRule are of the columns that Go has beside.
func bareTitle(language string) string {
	if language == "go" {
		return " bare host: CPU µs | SDK without policy: CPU µs |"
	}
	return ""
}

func bareRule(language string) string {
	if language == "go" {
		return "---|---|"
	}
	return ""
}

// spoken are the rows of a language.
func (p *page) spoken(language string) []string {
	var rows []string
	for _, bytes := range []int{scenario.Small, scenario.Medium} {
		for _, load := range InFlights() {
			rounds := func(who Contender) []measure.Sample { return p.index[spoken(language, load)(bytes, who)] }
			median := func(who Contender, of func(measure.Sample) float64) string {
				return number(figureOf(rounds(who), of).Median)
			}
			if len(rounds(Host)) == 0 && len(rounds(Framework)) == 0 {
				continue
			}
			row := fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s |", scenario.Policy(language, bytes).Size(), load.Callers(),
				median(Host, throughput), median(Framework, throughput), median(Host, processCPU), median(Framework, processCPU),
				ratioOf(rounds(Framework), rounds(Host), processCPU), median(Host, cpu))
			if language == "go" {
				row += fmt.Sprintf(" %s | %s |", median(Bare, processCPU), median(Allow, processCPU))
			}
			rows = append(rows, row)
		}
	}
	return rows
}
