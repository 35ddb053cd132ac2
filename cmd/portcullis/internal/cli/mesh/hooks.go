package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Hooks shows the hooks in force in the dispatchers.
func (s *Show) Hooks(ctx context.Context) error {
	if s.Watch {
		return errNoWatch
	}
	answers, err := Everywhere(ctx, s.Mesh, func(ctx context.Context, c Clients) (*configv1.ListHooksResponse, error) {
		return c.Config.ListHooks(ctx, &configv1.ListHooksRequest{})
	})
	if err != nil {
		return err
	}
	all := answers[0]
	for _, other := range answers[1:] {
		all.Hooks = append(all.GetHooks(), other.GetHooks()...)
	}
	if len(all.GetHooks()) == 0 {
		fmt.Fprintln(s.Notes, "no hook is in force")
	}
	list, err := listOf("Hook", all.GetHooks(), func(h *configv1.Hook) string { return h.GetHook().GetName() })
	if err != nil {
		return err
	}
	return s.printList(list, hookColumns(), s.hookRows(all.GetHooks()))
}

// OnDispatchers is a hook as several dispatchers have it, in the order of their answers.
type OnDispatchers []*configv1.Hook

// groupHooks groups the hooks of several dispatchers: names may repeat within a configuration, in the same order on each.
func groupHooks(hooks []*configv1.Hook) []OnDispatchers {
	type place struct {
		stage, object, name string
		nth                 int
	}
	var out []OnDispatchers
	groups, seen := map[place]int{}, map[[4]string]int{}
	for _, h := range hooks {
		object := h.GetHook().GetObject()
		p := place{stage: h.GetStage(), object: object.GetKind() + "/" + object.GetName(), name: h.GetHook().GetName()}
		occurrence := [4]string{h.GetDispatcherId(), p.stage, p.object, p.name}
		p.nth = seen[occurrence]
		seen[occurrence]++
		i, known := groups[p]
		if !known {
			i = len(out)
			groups[p], out = i, append(out, nil)
		}
		out[i] = append(out[i], h)
	}
	return out
}

// state is the state of a hook, or its states where the dispatchers differ.
func (all OnDispatchers) state() string {
	var states []string
	for _, h := range all {
		if w := Word(h.GetState().String()); !slices.Contains(states, w) {
			states = append(states, w)
		}
	}
	return strings.Join(states, ",")
}

// note is the first message of a dispatcher about a hook.
func (all OnDispatchers) note() string {
	for _, h := range all {
		if h.GetMessage() != "" {
			return h.GetMessage()
		}
	}
	return "-"
}

const noHost = "no host"

// Initializes reports whether a hook is an initializer.
func Initializes(h *configv1.Hook) bool {
	return h.GetHook().GetObject().GetKind() == kinds.InitializersKind
}

// ByControllers reports whether controllers act for a hook, which is an initializer, and no hosts.
func ByControllers(h *configv1.Hook) bool { return Initializes(h) && !h.GetStreamed() }

// ServedBy names the hosts or the webhook that answer the calls of a hook, in a few words.
func (all OnDispatchers) ServedBy() string {
	switch {
	case all[0].GetStreamed():
	case ByControllers(all[0]):
		return "controllers"
	case strings.HasSuffix(all[0].GetHook().GetObject().GetKind(), kinds.PolicyKind):
		return "the mesh"
	default:
		return cmp.Or(all[0].GetUrl(), "-")
	}
	hosts, without := 0, 0
	for _, h := range all {
		if hosts += int(h.GetHosts()); h.GetHosts() == 0 {
			without++
		}
	}
	text := fmt.Sprintf("%d hosts", hosts)
	switch hosts {
	case 0:
		return noHost
	case 1:
		text = "1 host"
	}
	if without > 0 {
		text += fmt.Sprintf(", none on %d of %d dispatchers", without, len(all))
	}
	return text
}

func hookColumns() printer.Columns {
	return printer.Heads("HOOK", "STAGE", "CLUSTERS", "FAILURE POLICY", "SERVED BY", "STATE", "OBJECT").Wide("TIMEOUT", "ORIGIN", "NOTE")
}

func (s *Show) hookRows(hooks []*configv1.Hook) [][]string {
	groups := groupHooks(hooks)
	rows := make([][]string, 0, len(groups))
	clusters := func(names []string) string { return firstOf(names, s.named(names), 0, ",") }
	for _, all := range groups {
		h := all[0]
		object := h.GetHook().GetObject()
		rows = append(rows, []string{
			h.GetHook().GetName(), h.GetStage(), clustersOf(h, clusters), h.GetFailurePolicy(), all.ServedBy(), all.state(),
			object.GetKind() + "/" + object.GetName(), took(h.GetTimeout()),
			strings.TrimSuffix(h.GetSource()+", "+h.GetOrigin(), ", "), all.note(),
		})
	}
	return rows
}

// ClustersOf names the clusters whose reviews a hook sees.
func ClustersOf(h *configv1.Hook) string {
	return clustersOf(h, func(names []string) string { return strings.Join(names, ", ") })
}

func clustersOf(h *configv1.Hook, join func(names []string) string) string {
	switch {
	case len(h.GetClusters()) > 0:
		return join(h.GetClusters())
	case len(h.GetExceptClusters()) > 0:
		return "all but " + join(h.GetExceptClusters())
	default:
		return "all"
	}
}
