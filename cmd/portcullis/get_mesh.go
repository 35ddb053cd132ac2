package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/config/gateway"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// dispatchers shows the live dispatchers.
func (c *getCommand) dispatchers(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer) error {
	if c.watch {
		return c.followDispatchers(ctx, client, out, notes)
	}
	answer, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	return c.show(out, answer, dispatcherRows(answer, c.output.value == formatWide, time.Now()))
}

// changes shows who changed what.
func (c *getCommand) changes(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer) error {
	if c.watch {
		return c.followChanges(ctx, client, out, notes)
	}
	answer, err := client.ListChanges(ctx, &configv1.ListChangesRequest{})
	if err != nil {
		return err
	}
	return c.show(out, answer, append(changesHead(), changeRows(answer.GetChanges(), "")...))
}

// changesHead names the columns of changes.
func changesHead() [][]string { return [][]string{{"REVISION", "WHEN", "WHO", "WHAT"}} }

// show prints an answer as it was asked for: whole, or as a table.
func (c *getCommand) show(out io.Writer, answer proto.Message, rows [][]string) error {
	switch c.output.value {
	case formatJSON:
		return writeMessage(out, answer)
	case formatYAML:
		data, err := gateway.Marshal(answer)
		if err == nil {
			data, err = yaml.JSONToYAML(data)
		}
		if err == nil {
			_, err = out.Write(data)
		}
		return err
	}
	return writeTable(out, "", rows)
}

// dispatcherRows are the dispatchers in a table: who is behind or diverges first of all.
func dispatcherRows(r *configv1.ListDispatchersResponse, wide bool, now time.Time) [][]string {
	head := []string{"DISPATCHER", "STATE", "ETCD", "CONFIG AGE", "SERVES STALE UNTIL", "VERSION"}
	if wide {
		head = append(head, "CONFIGURATION", "HELD", "SAID")
	}
	rows := [][]string{append(head, "KEEPS AN OLDER VERSION OF")}
	for _, d := range r.GetDispatchers() {
		row := []string{d.GetDispatcherId(), state(d, r.GetBehind()), etcdOf(d), age(d), servesStale(d), d.GetVersion()}
		if wide {
			row = append(row, d.GetApplied().GetDigest(), d.GetHeld(), when(d.GetSaid(), now))
		}
		rows = append(rows, append(row, cmp.Or(strings.Join(d.GetDiverging(), ", "), "-")))
	}
	return rows
}

// servesStale is until when a dispatcher may judge by a stale configuration.
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

// age is how old its configuration was when it said what it judges by.
func age(d *configv1.DispatcherStatus) string {
	return (time.Duration(d.GetConfigAgeMs()) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// shownActions is how many actions of a change a table names.
const shownActions = 3

// changeRows are changes in a table: what they did to one object, or the first of all that they did.
func changeRows(changes []*configv1.Change, about string) [][]string {
	rows := make([][]string, 0, len(changes))
	for _, change := range changes {
		shown := make([]string, 0, shownActions)
		for _, action := range change.GetActions() {
			if len(shown) < shownActions && (about == "" || isAbout(action, about)) {
				shown = append(shown, action)
			}
		}
		if actions := change.GetActions(); len(shown) == 0 {
			shown = actions[:min(len(actions), shownActions)]
		}
		what := strings.Join(shown, ", ")
		if more := len(change.GetActions()) - len(shown); more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		if a := change.GetAcknowledged(); len(a) > 0 {
			what += fmt.Sprintf(" (acknowledged %s)", strings.Join(a, ", "))
		}
		rows = append(rows, []string{change.GetRevision(), change.GetAt().AsTime().Format(time.RFC3339), change.GetActor(), what})
	}
	return rows
}

// isAbout reports whether an action of a change names an object.
func isAbout(action, object string) bool {
	return slices.ContainsFunc(strings.Fields(action), func(word string) bool { return strings.TrimSuffix(word, ":") == object })
}
