package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

func condition(o *configv1.ConfigObject, kind string) *configv1.Condition {
	for _, c := range o.GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return &configv1.Condition{}
}

// verdict is the first thing that is in the way of an object, in a sentence: what is not valid is not called, what is not
// called is not in force.
func (e *explained) verdict() string {
	o := e.object
	if o.GetRemoving() {
		return "is being removed: no review begins with it any more, and those that did are finished first"
	}
	for _, step := range []struct{ kind, not string }{
		{"Accepted", "is not valid"}, {"InRotation", "is not called"}, {"Effective", "is not in force everywhere"},
		{"Served", "is in force everywhere, and not served"},
	} {
		c := condition(o, step.kind)
		switch c.GetStatus() {
		case "False":
			return step.not + " (" + c.GetReason() + "): " + cmp.Or(c.GetMessage(), "no more is known")
		case "Unknown":
			return "may not be in force (" + c.GetReason() + "): " + cmp.Or(c.GetMessage(), "no more is known")
		}
	}
	return "is in force everywhere"
}

func (e *explained) text(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n\n", Name(e.object.GetKey()), printer.Text(e.verdict()))
	part := func(title string, rows [][]string) {
		fmt.Fprintln(&out, title)
		_ = printer.WriteRows(&out, "  ", rows) // a Builder takes everything
	}
	part("The object", e.facts(now))
	part("\nConditions", e.conditions())
	part("\nDispatchers", e.standings(now))
	part("\nFindings", e.findings())
	if len(e.changes) > 0 {
		part("\nLast changes", mesh.ChangeRows(e.changes, Name(e.object.GetKey())))
	}
	return out.String()
}

func (e *explained) facts(now time.Time) [][]string {
	o := e.object
	if o.GetActor() == "" {
		return [][]string{{"from", strings.TrimSuffix(o.GetSource()+", "+o.GetOrigin(), ", ")}}
	}
	rows := [][]string{
		{"from", fmt.Sprintf("%s, generation %d, version %s", o.GetSource(), o.GetGeneration(), o.GetResourceVersion())},
		{"changed", mesh.When(o.GetChanged(), now) + " by " + o.GetActor()},
	}
	for _, code := range slices.Sorted(maps.Keys(o.GetAcknowledged())) {
		rows = append(rows, []string{"acknowledged", code + " by " + o.GetAcknowledged()[code]})
	}
	return rows
}

func (e *explained) conditions() [][]string {
	var rows [][]string
	for _, c := range e.object.GetConditions() {
		rows = append(rows, []string{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage()})
	}
	return rows
}

func (e *explained) standings(now time.Time) [][]string {
	if len(e.dispatchers) == 0 {
		return [][]string{{"none says that it lives: look whether any runs and reaches the store"}}
	}
	var rows [][]string
	behind := condition(e.object, "Effective").GetDispatchers()
	for _, d := range e.dispatchers {
		at := "has it"
		switch {
		case slices.Contains(d.GetDiverging(), Name(e.object.GetKey())):
			at = "keeps an older version"
		case slices.Contains(behind, d.GetDispatcherId()):
			at = "behind"
		}
		rows = append(rows, []string{d.GetDispatcherId(), at, mesh.Standing(d) + ", said " + mesh.When(d.GetSaid(), now)})
	}
	return rows
}

func (e *explained) findings() [][]string {
	rows := make([][]string, 0, 1)
	for _, f := range e.object.GetFindings() {
		text := f.GetMessage()
		if f.GetPath() != "" {
			text = f.GetPath() + ": " + text
		}
		if who := cmp.Or(f.GetAcknowledgedBy(), e.object.GetAcknowledged()[f.GetCode()]); who != "" {
			text += " (acknowledged by " + who + ")"
		}
		rows = append(rows, []string{f.GetSeverity(), f.GetCode(), text})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"none"})
	}
	return rows
}
