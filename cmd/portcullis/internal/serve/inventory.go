package serve

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// maxHostHooks is how many of the hooks of a host a listing names; the others are counted.
const maxHostHooks = 16

// connectedHosts are the hosts of this dispatcher, as ConfigService lists them.
func (a *app) connectedHosts(hook, after string, limit int) (hosts []*configv1.Host, more bool) {
	found, more := a.router.Hosts(session.HostPage{Hook: hook, After: after, Limit: limit})
	for i := range found {
		hosts = append(hosts, hostOf(&found[i]))
	}
	return hosts, more
}

func hostOf(h *session.HostStatus) *configv1.Host {
	out := &configv1.Host{
		Host: h.Name, Instance: h.Instance, Identity: h.Identity, SessionId: h.Session, State: hostState(h.State),
		SlotsUsed: uint32(h.Used), Slots: uint32(h.Slots), Connected: timestamppb.New(h.Connected), Sdk: h.SDK, Zone: h.Zone,
	}
	shown := h.Hooks[:min(len(h.Hooks), maxHostHooks)]
	for _, hook := range shown {
		out.Hooks = append(out.Hooks, service.HookRefOf(hook))
	}
	out.HooksMore = uint32(len(h.Hooks) - len(shown))
	if h.P99 > 0 {
		out.P50, out.P99 = durationpb.New(h.P50), durationpb.New(h.P99)
	}
	return out
}

func hostState(s session.HostState) configv1.Host_State {
	switch s {
	case session.HostServing:
		return configv1.Host_STATE_SERVING
	case session.HostNotGranted:
		return configv1.Host_STATE_NOT_GRANTED
	case session.HostDraining:
		return configv1.Host_STATE_DRAINING
	case session.HostSilent:
		return configv1.Host_STATE_SILENT
	case session.HostNoSlots:
		return configv1.Host_STATE_NO_SLOTS
	case session.HostPending:
		return configv1.Host_STATE_PENDING
	}
	return configv1.Host_STATE_UNSPECIFIED
}

// hookHosts is how the hosts of this dispatcher serve the hooks.
func (a *app) hookHosts() []service.HookHosts {
	all := a.router.HookHosts()
	out := make([]service.HookHosts, len(all))
	for i, h := range all {
		out[i] = service.HookHosts{Hook: h.Hook, Hosts: h.Hosts, Slots: h.Slots, Unserved: h.Unserved, Removed: h.Removed}
		if h.Pending != nil {
			_, out[i].Pending = whyPending(h.Pending)
		}
	}
	return out
}
