package analyze

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// barWidth is how many characters the whole time of a review takes.
const barWidth = 40

// Waterfall draws one review: a line for each span of its time, a bar where it lies in the whole.
func Waterfall(v *analysisv1.Review) string {
	var b strings.Builder
	object := v.GetResource()
	if v.GetGroup() != "" {
		object += "." + v.GetGroup()
	}
	for _, part := range []string{v.GetNamespace(), v.GetName()} {
		if part != "" {
			object += " " + part
		}
	}
	fmt.Fprintf(&b, "%s %s of cluster %s: %s, %s\n", printer.Text(v.GetOperation()), printer.Text(object), printer.Text(v.GetCluster()),
		v.GetStage(), v.GetOutcome())
	fmt.Fprintf(&b, "  uid %s, at %s, on dispatcher %s\n", printer.Text(v.GetUid()), v.GetBegun().AsTime().Format(time.RFC3339), printer.Text(v.GetDispatcherId()))
	if v.GetTraceId() != "" {
		fmt.Fprintf(&b, "  trace %s\n", v.GetTraceId())
	}
	edge := v.GetEdge().AsDuration()
	w := waterfall{b: &b, whole: edge + v.GetTook().AsDuration()}
	w.line("review", "", 0, w.whole, "")
	if edge > 0 {
		w.line("  read and decoded", "", 0, edge, "")
	}
	if held := v.GetHeld().AsDuration(); held >= time.Millisecond {
		w.line("  held for a fresh configuration", "", edge, held, "")
	}
	for _, c := range v.GetCalls() {
		w.call(edge, c)
	}
	return b.String()
}

type waterfall struct {
	b     *strings.Builder
	whole time.Duration
}

// line writes one span. mark fills its bar; empty is "=".
func (w *waterfall) line(name, mark string, begun, took time.Duration, note string) {
	from, to := w.column(begun), w.column(begun+took)
	bar := strings.Repeat(" ", from) + strings.Repeat(cmp.Or(mark, "="), max(1, to-from))
	if note != "" {
		note = "  " + note
	}
	fmt.Fprintf(w.b, "%-44s |%-*s| %10s%s\n", name, barWidth, bar[:min(len(bar), barWidth)], analysis.Duration(took).Rounded(), note)
}

func (w *waterfall) column(at time.Duration) int {
	if w.whole <= 0 {
		return 0
	}
	return min(barWidth-1, int(int64(at)*barWidth/int64(w.whole)))
}

func (w *waterfall) call(edge time.Duration, c *analysisv1.Call) {
	begun, ended := c.GetBegun().AsDuration(), c.GetEnded().AsDuration()
	name := "  " + printer.Text(c.GetHook().GetName())
	if c.GetHook().GetStage() == analysis.StageInitialize {
		name += " (initializer)"
	}
	if c.GetRound() > 0 {
		name += " (again)"
	}
	note := c.GetOutcome()
	if c.GetInstance() != "" {
		note += " by " + printer.Text(c.GetInstance())
	}
	if c.GetReason() != "" {
		note += ": " + printer.Text(c.GetReason())
	}
	w.line(name, "#", edge+begun, ended-begun+c.GetApplied().AsDuration(), note)
	at := edge + begun
	for _, phase := range phasesOf(c) {
		if phase.took > 0 {
			w.line("    "+phase.name, "-", at, phase.took, "")
			at += phase.took
		}
	}
}

type phase struct {
	name string
	took time.Duration
}

// phasesOf are the phases of a call in their order. The way back from the host is part of wire, so the places of wire and host are not exact.
func phasesOf(c *analysisv1.Call) []phase {
	wire, host := "wire", "host"
	switch {
	case strings.Contains(c.GetHook().GetConfiguration(), "/"): // KIND/NAME of a policy
		host = "policy"
	case !c.GetStreamed():
		wire = "webhook"
	case c.GetHook().GetStage() == analysis.StageInitialize && c.GetInstance() == "":
		host = "controller"
	}
	return []phase{
		{"queue", c.GetQueued().AsDuration()}, {wire, c.GetWire().AsDuration()},
		{host, c.GetHost().AsDuration()}, {"apply", c.GetApplied().AsDuration()},
	}
}
