package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// Dispatchers shows the live dispatchers.
func (s *Show) Dispatchers(ctx context.Context) error {
	if s.Watch {
		return s.watchDispatchers(ctx)
	}
	answer, err := s.Config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	if answer.GetNoStore() {
		fmt.Fprintln(s.Notes, "there is no store, so dispatchers do not know each other: this is the dispatcher that answered")
	}
	return s.print(printer.Message{Message: answer}, dispatcherColumns(), s.dispatcherRows(answer, time.Now()))
}

// watchDispatchers shows each dispatcher again when something has changed about it but its age; all in a line of JSON when one has.
func (s *Show) watchDispatchers(ctx context.Context) error {
	whole := Shown[*configv1.ListDispatchersResponse]{Same: func(a, b *configv1.ListDispatchersResponse) bool { return proto.Equal(a, b) }}
	each := Shown[[]string]{Same: slices.Equal[[]string]}
	table := printer.NewTable(s.Out, s.Format, dispatcherColumns())
	return s.poll(ctx, func(ctx context.Context) error {
		answer, err := s.Config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
		switch {
		case err != nil:
			return err
		case s.Format != printer.JSON:
			return table.Write(s.changedRows(answer, &each)...)
		case whole.Put("", timeless(answer)):
			return printer.WriteLine(s.Out, printer.Message{Message: answer})
		}
		return nil
	})
}

// changedRows are the rows of dispatchers that have changed, and of those that are gone.
func (s *Show) changedRows(answer *configv1.ListDispatchersResponse, shown *Shown[[]string]) (rows [][]string) {
	now, there := time.Now(), map[string]bool{}
	full := s.dispatcherRows(answer, now)
	for i, row := range s.dispatcherRows(timeless(answer), now) {
		there[row[0]] = true
		if shown.Put(row[0], row) {
			rows = append(rows, full[i])
		}
	}
	for _, row := range shown.Gone(there) {
		shown.Drop(row[0])
		rows = append(rows, []string{row[0], "gone"})
	}
	return rows
}

// timeless is an answer without the times of its reports and the ages of configurations.
func timeless(r *configv1.ListDispatchersResponse) *configv1.ListDispatchersResponse {
	r = proto.CloneOf(r)
	for _, d := range r.GetDispatchers() {
		d.Said, d.ConfigAgeMs = nil, 0
	}
	return r
}

func dispatcherColumns() printer.Columns {
	return printer.Heads("DISPATCHER", "STATE", "ETCD", "CONFIG AGE", "SERVES STALE UNTIL", "VERSION").
		Wide("CONFIGURATION", "HELD", "SAID").And("KEEPS AN OLDER VERSION OF")
}

// dispatcherRows are the dispatchers in a table. Cells of columns that are not shown are empty.
func (s *Show) dispatcherRows(r *configv1.ListDispatchersResponse, now time.Time) [][]string {
	rows := make([][]string, 0, len(r.GetDispatchers()))
	for _, d := range r.GetDispatchers() {
		age := (time.Duration(d.GetConfigAgeMs()) * time.Millisecond).Round(100 * time.Millisecond)
		row := []string{d.GetDispatcherId(), state(d, r.GetBehind()), applied(d), age.String(), servesStale(d), d.GetVersion(), "", "", ""}
		if s.Format == printer.Wide {
			row = append(row[:6], d.GetApplied().GetDigest(), d.GetHeld(), When(d.GetSaid(), now))
		}
		rows = append(rows, append(row, cmp.Or(strings.Join(d.GetDiverging(), ", "), "-")))
	}
	return rows
}

func servesStale(d *configv1.DispatcherStatus) string {
	if d.GetServesStaleUntil() == nil {
		return "-"
	}
	return d.GetServesStaleUntil().AsTime().Format(time.RFC3339)
}

// state is how a dispatcher is, in a word or two.
func state(d *configv1.DispatcherStatus, behind []string) string {
	var is []string
	if !d.GetJudging() {
		is = append(is, "Stopped") // its configuration is too old
	}
	if slices.Contains(behind, d.GetDispatcherId()) {
		is = append(is, "Behind")
	}
	if len(d.GetDiverging()) > 0 {
		is = append(is, "Diverging")
	}
	return cmp.Or(strings.Join(is, ","), "Current")
}

// Standing describes in a sentence the configuration by which a dispatcher judges.
func Standing(d *configv1.DispatcherStatus) string {
	revision := cmp.Or(d.GetApplied().GetSources()["etcd"], d.GetApplied().GetDigest(), "-")
	parts := []string{"judges new reviews by revision " + revision}
	if !d.GetJudging() {
		parts[0] = "judges nothing, its configuration is too old (revision " + revision + ")"
	}
	if held := d.GetHeld(); held != "" && held != "0" && held != applied(d) {
		parts = append(parts, "and still some by "+held)
	}
	if d.GetServesStaleUntil() != nil {
		parts = append(parts, "serves stale until "+servesStale(d))
	}
	if len(d.GetDiverging()) > 0 {
		parts = append(parts, "keeps older versions of "+strings.Join(d.GetDiverging(), ", "))
	}
	return strings.Join(parts, ", ")
}

func applied(d *configv1.DispatcherStatus) string {
	return cmp.Or(d.GetApplied().GetSources()["etcd"], "-")
}

// When is a moment, and how long before now it was.
func When(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s ago)", t.AsTime().Format(time.RFC3339), now.Sub(t.AsTime()).Round(time.Second))
}
