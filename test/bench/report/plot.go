package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// The measures of the plot, in pixels.
const (
	plotWidth, plotHeight = 860, 420
	plotLeft, plotRight   = 70, 20
	plotTop, plotBottom   = 60, 60
	barGap                = 24 // between groups
)

// plotted are the contenders in the plot: those with a colour.
func plotted() []Contender {
	return slices.DeleteFunc(Contenders(), func(who Contender) bool { return colours()[who] == "" })
}

// colours are the colours of the contenders in the plot; the limits are pale.
func colours() map[Contender]string {
	return map[Contender]string{
		Native: "#b0413e", Bridge: "#3e7cb0", Dispatcher: "#1f4e79", Bare: "#6a8f5a", Streams: "#b9c7d5", RoundTrip: "#d9d9d9",
	}
}

// Plot writes an SVG with the throughput of validating hooks on hosts of their own, in logarithms: a group of bars for each
// number of hooks and size of Pod.
func (r *Run) Plot(w io.Writer) error {
	c := newChart(r)
	c.text("start", plotLeft, 24, 16, "Reviews per second: validating hooks, each on a host of its own")
	c.legend()
	c.axis()
	for i := range c.groups {
		c.group(i)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">`+"\n"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n%s</svg>\n", plotWidth, plotHeight, c.svg.String())
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// chart is a plot that is being drawn.
type chart struct {
	groups   []scenario.Scenario
	values   map[Cell]float64
	from, to float64 // powers of ten at both ends of the axis
	svg      strings.Builder
}

// newChart takes the figures of the plot out of a run.
func newChart(r *Run) *chart {
	c := &chart{values: map[Cell]float64{}, from: math.Inf(1), to: math.Inf(-1)}
	for _, s := range r.scenarios() {
		if isUsual(s) && s.Stage == scenario.Validate && s.Hosts == s.Hooks {
			c.groups = append(c.groups, s)
		}
	}
	for k, rounds := range r.index() {
		value := figureOf(rounds, throughput).Median
		if k.Load != Full || !isUsual(k.Scenario) || k.Stage != scenario.Validate || k.Hosts != k.Hooks || value <= 0 {
			continue
		}
		c.values[k] = value
		c.from = min(c.from, math.Floor(math.Log10(value)))
		c.to = max(c.to, math.Ceil(math.Log10(value)))
	}
	if len(c.values) == 0 {
		c.from, c.to = 0, 1
	}
	c.to = max(c.to, c.from+1)
	return c
}

// y is the height of a value.
func (c *chart) y(value float64) float64 {
	part := (math.Log10(value) - c.from) / (c.to - c.from)
	return plotHeight - plotBottom - part*(plotHeight-plotTop-plotBottom)
}

// text writes text at a place; anchor is start, middle or end.
func (c *chart) text(anchor string, x, y float64, size int, text string) {
	fmt.Fprintf(&c.svg, `<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s">%s</text>`+"\n", x, y, size, anchor, text)
}

// bar draws a rectangle.
func (c *chart) bar(x, y, width, height float64, fill string) {
	fmt.Fprintf(&c.svg, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, fill)
}

// legend names the colours.
func (c *chart) legend() {
	x := float64(plotLeft)
	for _, who := range plotted() {
		c.bar(x, 34, 12, 12, colours()[who])
		c.text("start", x+16, 44, 12, string(who))
		x += 125
	}
}

// axis draws a line for each power of ten.
func (c *chart) axis() {
	for power := c.from; power <= c.to; power++ {
		value := math.Pow(10, power)
		y := c.y(value)
		fmt.Fprintf(&c.svg, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#cccccc"/>`+"\n", plotLeft, plotWidth-plotRight, y, y)
		c.text("end", plotLeft-8, y+4, 12, fmt.Sprintf("%g", value))
	}
}

// group draws the bars of one scenario.
func (c *chart) group(i int) {
	const area = plotWidth - plotLeft - plotRight
	s, width := c.groups[i], float64(area)/float64(len(c.groups))
	x, each := plotLeft+float64(i)*width+barGap/2, (width-barGap)/float64(len(plotted()))
	for j, who := range plotted() {
		if value, ok := c.values[Cell{s, who, Full}]; ok {
			top := c.y(value)
			c.bar(x+float64(j)*each, top, each-1, plotHeight-plotBottom-top, colours()[who])
		}
	}
	middle := plotLeft + (float64(i)+0.5)*width
	c.text("middle", middle, plotHeight-plotBottom+18, 12, fmt.Sprintf("hooks: %d", s.Hooks))
	c.text("middle", middle, plotHeight-plotBottom+34, 12, "Pod of "+s.Size())
}
