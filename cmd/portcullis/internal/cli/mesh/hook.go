package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// HookReport holds the facts about the hooks of a name, of the dispatchers that answered.
type HookReport struct {
	// Hooks are the hooks of the name: a name may stand in several configurations and stages.
	Hooks []OnDispatchers
	// Hosts are the hosts that serve any of them.
	Hosts []*configv1.Host
}

// hookAnswer is the answer of one dispatcher.
type hookAnswer struct {
	hooks *configv1.ListHooksResponse
	hosts *configv1.ListHostsResponse
}

// GetDispatcherId implements fromDispatcher.
func (a hookAnswer) GetDispatcherId() string { return a.hooks.GetDispatcherId() } //nolint:staticcheck // named by generated code

// Hook asks the dispatchers about the hooks of a name, and notes the dispatchers that do not answer.
func (s *Show) Hook(ctx context.Context, name string) (*HookReport, error) {
	answers, err := Everywhere(ctx, s.Mesh, func(ctx context.Context, c Clients) (a hookAnswer, err error) {
		if a.hooks, err = c.Config.ListHooks(ctx, &configv1.ListHooksRequest{Name: name}); err != nil {
			return a, err
		}
		a.hosts, err = ListHosts(ctx, c.Config, name)
		return a, err
	})
	if err != nil {
		return nil, err
	}
	r := &HookReport{}
	var hooks []*configv1.Hook
	for _, a := range answers {
		hooks, r.Hosts = append(hooks, a.hooks.GetHooks()...), append(r.Hosts, a.hosts.GetHosts()...)
	}
	r.Hooks = groupHooks(hooks)
	sortHosts(r.Hosts)
	return r, nil
}

// Verdict names the first obstacle of a hook in a sentence.
func (all OnDispatchers) Verdict() string {
	h, served := all[0], all.ServedBy()
	effect := "requests that it covers pass unchecked"
	switch {
	case h.GetFailurePolicy() == "Fail":
		effect = "requests that it covers are refused"
	case Initializes(h):
		effect = "objects that it covers are created without it"
	}
	state := all.state()
	switch {
	case state == "Removed":
		return "was removed: no review begins with it any more"
	case strings.Contains(state, "Pending"):
		return "is not called yet: " + all.note()
	case state == "Shadow" && all.unserved() > 0:
		return "is in shadow, and not served: it records nothing: " + all.note()
	case state == "Shadow":
		return "is in shadow, where it decides nothing; served by " + served
	case all.unserved() == len(all):
		return "is called, and no host answers: " + effect + ": " + all.note()
	case all.unserved() > 0:
		return fmt.Sprintf("is called, and no host answers on %d of %d dispatchers: %s there: %s", all.unserved(), len(all), effect, all.note())
	}
	if served == noHost {
		return "is called, and its last host has just left: calls wait a moment for another one"
	}
	return "is called, and served by " + served
}

// Shadow reports whether the hook is in shadow on some dispatcher.
func (all OnDispatchers) Shadow() bool {
	return slices.ContainsFunc(all, func(h *configv1.Hook) bool { return h.GetState() == configv1.Hook_STATE_SHADOW })
}

// unserved counts the dispatchers on which calls of the hook fail for want of a host.
func (all OnDispatchers) unserved() (n int) {
	for _, h := range all {
		if h.GetUnserved() {
			n++
		}
	}
	return n
}

// Rows are the state and the hosts of the hook on each dispatcher, in a table without heads.
func (all OnDispatchers) Rows() [][]string {
	var rows [][]string
	for _, h := range all {
		row := []string{h.GetDispatcherId(), Word(h.GetState().String()), OnDispatchers{h}.ServedBy()}
		if h.GetStreamed() {
			row = append(row, fmt.Sprintf("%d slots", h.GetSlots()))
		}
		rows = append(rows, append(row, h.GetMessage()))
	}
	return rows
}

// HostRows are the hosts of the report, below heads.
func (r *HookReport) HostRows(now time.Time) [][]string {
	s := &Show{Format: printer.Wide}
	rows := [][]string{{"HOST", "INSTANCE", "IDENTITY", "DISPATCHER", "STATE", "SLOTS", "P50", "P99", "CONNECTED"}}
	for _, row := range s.hostRows(r.Hosts, now) {
		rows = append(rows, append(row[:4:4], row[5:10]...))
	}
	return rows
}
