package report

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
)

// Road is how the hook of the cluster is called whose reviews are measured.
type Road string

// The roads.
const (
	// Webhook is an ordinary webhook, called over HTTPS.
	Webhook Road = "webhook"
	// Stream is a host, called over its stream.
	Stream Road = "stream"
)

// Roads are all, in the order of tables.
func Roads() []Road { return []Road{Webhook, Stream} }

// Flood is the load of another cluster meanwhile.
type Flood string

// The floods.
const (
	// Quiet is no load: the baseline of the others.
	Quiet Flood = "quiet"
	// SlowWebhook is reviews of the same webhook, which does not answer the other cluster's.
	SlowWebhook Flood = "slow webhook"
	// HangingWebhooks are reviews of webhooks of the other cluster's own, none of which answers.
	HangingWebhooks Flood = "8 hanging webhooks"
	// NoConnection is reviews of a webhook to which nobody can connect.
	NoConnection Flood = "webhook that does not connect"
	// SlowHandlers is reviews of the same host, whose handlers do not answer the other cluster's.
	SlowHandlers Flood = "slow handlers"
)

// Floods are all, in the order of tables, without Quiet.
func Floods() []Flood { return []Flood{SlowWebhook, HangingWebhooks, NoConnection, SlowHandlers} }

// TenancyCell is one cluster's reviews on one road during one flood. It is comparable.
type TenancyCell struct {
	Road  Road  `json:"road"`
	Flood Flood `json:"flood"`
}

// String names the cell, as cells are named.
func (c TenancyCell) String() string { return fmt.Sprintf("tenancy/%s/%s", c.Road, c.Flood) }

// Tenancy has the figures of the rounds of one such cell.
type Tenancy struct {
	TenancyCell

	// Rounds are the reviews of the cluster that is measured, at a fixed rate.
	Rounds []measure.Sample `json:"rounds"`
	// Flooding is how many reviews of the other cluster were under way or waited, in each round.
	Flooding Figure `json:"flooding"`
}

// during returns the figures of a road during a flood.
func (r *Run) during(c TenancyCell) (Tenancy, error) {
	for _, t := range r.Tenancies {
		if t.TenancyCell == c {
			return t, nil
		}
	}
	return Tenancy{}, r.failure(c.String())
}

// tenancyTargets are the targets of each road and flood: one cluster does not feel the flood of another.
func tenancyTargets(sizes []int) []target {
	var all []target
	for _, road := range Roads() {
		for _, flood := range Floods() {
			all = append(all, target{
				title: fmt.Sprintf("a cluster's reviews (%s) while another cluster floods (%s): p99, times that in quiet", road, flood),
				bound: tenancyBound, sizes: sizes, of: onlyDispatcher(flooded(road, flood)),
			})
		}
	}
	return all
}

// tenancyBound is how many times longer than in quiet a review may take during a flood, at the 99th percentile.
const tenancyBound = 1.5

// flooded is the p99 during a flood, divided by the p99 of the same rounds in quiet.
func flooded(road Road, flood Flood) func(*Run, int, Contender) (Figure, error) {
	return func(r *Run, _ int, _ Contender) (Figure, error) {
		a, err := r.during(TenancyCell{road, flood})
		b, err2 := r.during(TenancyCell{road, Quiet})
		return ratioOf(a.Rounds, b.Rounds, p99), worse(err, err2)
	}
}

// tenancies writes the table of clusters and their neighbours.
func (p *page) tenancies() {
	if len(p.run.Tenancies) == 0 {
		return
	}
	p.linef("## A cluster, while another one floods\n")
	p.linef(`One cluster sends reviews at a fixed rate to a hook that takes 5 ms. Another one has sent 4,000, none of which is answered, and
sends 50 a second; the table says how many of them are under way or wait, the others are refused. Both share one dispatcher, with its
default limits. Times are those of the first cluster, and in brackets how many times the same rounds in quiet.
`)
	p.linef("| hook | flood of the other cluster | its reviews in | reviews/s | p50 µs | p99 µs |")
	p.linef("|---|---|---|---|---|---|")
	for _, t := range p.run.Tenancies {
		of := func(m func(measure.Sample) float64) string {
			text := number(figureOf(t.Rounds, m).Median)
			if b, err := p.run.during(TenancyCell{t.Road, Quiet}); err == nil && t.Flood != Quiet {
				text += fmt.Sprintf(" (%s)", ratioOf(t.Rounds, b.Rounds, m))
			}
			return text
		}
		p.linef("| %s | %s | %s | %s | %s | %s |", t.Road, t.Flood, number(t.Flooding.Median), number(figureOf(t.Rounds, throughput).Median), of(p50), of(p99))
	}
	p.linef("")
}

// Line is the result for people who wait for it.
func (t Tenancy) Line() string {
	of := func(f func(measure.Sample) float64) Figure { return figureOf(t.Rounds, f) }
	return fmt.Sprintf("%-60s %9.0f/s  p50 %7.0f us  p99 %7.0f us %-6s  %4.0f reviews of the other cluster",
		t.TenancyCell, of(throughput).Median, of(p50).Median, of(p99).Median, of(p99).spread(), t.Flooding.Median)
}
