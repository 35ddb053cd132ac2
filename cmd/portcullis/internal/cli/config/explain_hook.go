package config

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// explainedCases is the number of cases of a hook in shadow that explain prints for each cluster.
const explainedCases = 5

// hookNamed returns the name of a hook if the arguments are hook NAME or hook/NAME.
func hookNamed(args []string) (name string, ok bool) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	word := strings.ToLower(args[0])
	if len(args) != 2 || args[1] == "" || word != "hook" && word != "hooks" {
		return "", false
	}
	return args[1], true
}

// hook explains the hooks of a name, their hosts, and the configurations that have them.
func (c *explainCommand) hook(cmd *cobra.Command, name string) error {
	return c.mesh.Use(cmd.Context(), c.timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		show := &mesh.Show{Mesh: mesh.New(conn, &c.mesh, cmd.ErrOrStderr())}
		report, err := show.Hook(ctx, name)
		if err != nil {
			return err
		}
		if len(report.Hooks) == 0 {
			return mesh.Known(ctx, show.Config, "", name)
		}
		shadows, err := shadowsOf(ctx, show.Mesh, report)
		if err != nil {
			return err
		}
		text, whole, err := explainHooks(ctx, show.Config, report, shadows)
		if err != nil {
			return err
		}
		return printer.Print(cmd.OutOrStdout(), c.output, whole, func() error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		})
	})
}

// shadowsOf returns the would-be decisions of the hooks of a report, if any of them is in shadow.
func shadowsOf(ctx context.Context, m mesh.Mesh, report *mesh.HookReport) ([]analysis.Shadow, error) {
	if !slices.ContainsFunc(report.Hooks, mesh.OnDispatchers.Shadow) {
		return nil, nil
	}
	m.Notes = io.Discard // the question for the hooks noted who does not answer
	return mesh.Shadows(ctx, m, &analysisv1.ListShadowsRequest{Hook: report.Hooks[0][0].GetHook().GetName()})
}

// shadowRows are the would-be decisions of a hook in shadow, by cluster, and its latest cases.
func shadowRows(all mesh.OnDispatchers, shadows []analysis.Shadow) [][]string {
	rows := [][]string{}
	for i := range shadows {
		s := &shadows[i]
		if h := all[0]; s.Stage != h.GetStage() || s.Configuration != h.GetHook().GetObject().GetName() {
			continue
		}
		rows = append(rows, []string{"cluster " + s.Cluster, s.Summary()})
		for j := range s.Cases[:min(len(s.Cases), explainedCases)] {
			k := &s.Cases[j]
			text := fmt.Sprintf("%s %s by %s (%d): %s", k.Object(), k.Namespace, k.User, k.Calls, k.Message)
			rows = append(rows, []string{"  would " + k.Word(), strings.TrimSuffix(text, ": ")})
		}
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"no call is recorded"})
	}
	return rows
}

// explainHooks returns the explanation of hooks as text, and whole.
func explainHooks(
	ctx context.Context, client configv1.ConfigServiceClient, report *mesh.HookReport, shadows []analysis.Shadow,
) (text string, whole map[string]any, err error) {
	var out strings.Builder
	var hooks, objects []any
	part := func(title string, rows [][]string) {
		fmt.Fprintln(&out, title)
		_ = printer.WriteRows(&out, "  ", rows) // a Builder takes everything
	}
	for _, all := range report.Hooks {
		h := all[0]
		key := h.GetHook().GetObject()
		fmt.Fprintf(&out, "hook %s of %s %s\n\n", printer.Text(h.GetHook().GetName()), printer.Text(Name(key)), printer.Text(all.Verdict()))
		part("The hook", [][]string{
			{"stage", h.GetStage()},
			{"failure policy", h.GetFailurePolicy()},
			{"timeout", h.GetTimeout().AsDuration().String()},
			{"clusters", mesh.ClustersOf(h)},
		})
		part("\nServed by", all.Rows())
		if all.Shadow() {
			part("\nIn shadow, of the last week (see `portcullis shadow report`)", shadowRows(all, shadows))
		}
		fmt.Fprintln(&out)
		hooks = append(hooks, map[string]any{"verdict": all.Verdict(), "dispatchers": printer.Messages(all)})
	}
	if len(report.Hosts) > 0 {
		part("Hosts", report.HostRows(time.Now()))
		fmt.Fprintln(&out)
	}
	seen := map[string]bool{}
	for _, all := range report.Hooks {
		key := all[0].GetHook().GetObject()
		if seen[Name(key)] || all[0].GetState() == configv1.Hook_STATE_REMOVED {
			continue
		}
		seen[Name(key)] = true
		e, err := explain(ctx, client, key)
		if err != nil {
			return "", nil, err
		}
		told, err := e.messages()
		if err != nil {
			return "", nil, err
		}
		out.WriteString(e.text(time.Now()))
		objects = append(objects, told)
	}
	return out.String(), map[string]any{"hooks": hooks, "hosts": printer.Messages(report.Hosts), "objects": objects, "shadows": shadows}, nil
}
