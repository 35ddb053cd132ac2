package service

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// codeNoHost is the code of a finding: no host serves a hook, on some dispatchers or on all.
	codeNoHost = "no-host-connected"
	// maxHooksNamed bounds the hooks that a condition or finding names.
	maxHooksNamed = 8
)

// HookHosts describes how the hosts of this dispatcher serve a hook.
type HookHosts struct {
	// Hook is the hook.
	Hook *match.Hook
	// Hosts is the number of hosts that serve the hook, and Slots how many calls they take at a time, of all their hooks.
	Hosts, Slots int
	// Unserved is true if calls of the hook fail since there is no host.
	Unserved bool
	// Pending is why the hook is not in rotation yet; empty if it is.
	Pending string
	// Removed is true of a hook that the configuration in force does not have, and that reviews may still call.
	Removed bool
}

// called reports whether new reviews call the hook.
func (h *HookHosts) called() bool { return h.Pending == "" && !h.Removed }

// unserved lists where a hook has no host.
type unserved struct {
	HookHosts

	on      []string // ids of dispatchers
	unknown int      // dispatchers that report more such hooks than they name
	of      int      // live dispatchers; 0 if none has reported
}

// unservedOn returns where a hook has no host. Before any dispatcher has reported, this one counts alone.
func (m *meshState) unservedOn(h HookHosts) unserved {
	u := unserved{HookHosts: h, of: len(m.dispatchers)}
	for _, d := range m.dispatchers {
		switch {
		case LacksHost(d, h.Hook):
			u.on = append(u.on, d.GetStatus().GetDispatcherId())
		case d.GetUnservedMore() > 0:
			u.unknown++
		}
	}
	return u
}

// LacksHost reports whether a dispatcher names a hook among those that no host serves there.
func LacksHost(d *configv1.DispatcherReport, h *match.Hook) bool {
	return names(d.GetUnserved(), config.KeyOf(h).String(), h)
}

// reportsNoHost reports whether a dispatcher, which has the hook in force, names all of its hosts and none that offers the hook and may serve it
// by its route. The route need not be in force there.
func reportsNoHost(d *configv1.DispatcherReport, h *match.Hook) bool {
	object, grant := config.KeyOf(h).String(), identity.Grant{Names: h.Route.Hosts, Authorities: h.Route.Authorities}
	return d.GetConnected() != nil && !d.GetConnected().GetMore() && !slices.ContainsFunc(d.GetConnected().GetHosts(), func(x *configv1.HostOffers) bool {
		return grant.Includes(identity.Named(x.GetIdentity(), x.GetAuthorities()...)) && names(x.GetHooks(), object, h)
	})
}

// names reports whether a list names a hook of an object.
func names(list []*configv1.HookName, object string, h *match.Hook) bool {
	return slices.ContainsFunc(list, func(n *configv1.HookName) bool { return n.GetObject() == object && n.GetHook() == h.ID.Name })
}

// missing reports whether some dispatcher has no host for the hook.
func (u *unserved) missing() bool { return len(u.on) > 0 || u.of == 0 && u.Unserved }

// String describes where the hook is served.
func (u *unserved) String() string {
	text := fmt.Sprintf("hook %q: ", u.Hook.ID.Name)
	switch {
	case u.of == 0 && u.Unserved:
		return text + "no host"
	case len(u.on) == 0 && u.Hosts == 0: // for less than a host takes to come back
		return text + "no host at this moment, its calls wait for one"
	case len(u.on) == 0:
		return text + fmt.Sprintf("%s, %s", counted(u.Hosts, "host"), counted(u.Slots, "slot"))
	}
	text += fmt.Sprintf("served on %d of %s, no host on: %s", u.of-len(u.on)-u.unknown, counted(u.of, "dispatcher"), strings.Join(u.on, ", "))
	if u.unknown > 0 {
		text += fmt.Sprintf("; not known of %d", u.unknown)
	}
	return text
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// served reports whether every hook of a configuration or HookRoute that is called over streams has a host on every dispatcher;
// nil if there is no such hook. It counts the hosts and slots of the dispatcher that answers.
func (m *meshState) served(key config.Key) *configv1.Condition {
	if len(m.hosts[key]) == 0 {
		return nil
	}
	var well, missing []string
	var on []string
	for _, h := range m.hosts[key] {
		u := m.unservedOn(h)
		if u.missing() {
			missing, on = append(missing, u.String()), append(on, u.on...)
		} else {
			well = append(well, u.String())
		}
	}
	if len(missing) == 0 {
		return condition(conditionServed, true, "HostsConnected", firstOf(well))
	}
	c := condition(conditionServed, false, "NoHost", firstOf(missing))
	slices.Sort(on)
	c.Dispatchers = slices.Compact(on)
	return c
}

// firstOf joins the first maxHooksNamed parts, and counts the others.
func firstOf(parts []string) string {
	shown := parts[:min(len(parts), maxHooksNamed)]
	if more := len(parts) - len(shown); more > 0 {
		shown = append(slices.Clip(shown), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, "; ")
}

// noHosts returns findings about the hooks of a configuration without a host.
func (m *meshState) noHosts(key config.Key) config.Problems {
	if key.Kind == kinds.HookRouteKind {
		return nil // the finding is about the configuration
	}
	var out config.Problems
	for _, h := range m.hosts[key] {
		u := m.unservedOn(h)
		if !u.missing() {
			continue
		}
		p := config.Problem{Severity: match.SeverityWarning, Code: codeNoHost, Key: key}
		effect := "requests that it covers pass unchecked there"
		switch {
		case h.Hook.Route.Shadow:
			effect = "it is in shadow, and records nothing there"
		case h.Hook.FailsClosed():
			p.Severity, effect = match.SeverityError, "requests that it covers are refused there"
		}
		p.Message = u.String() + "; " + effect + ": " + connectHost(h.Hook)
		out = append(out, p)
	}
	return out
}

// connectHost returns the remedy for a hook without a host.
func connectHost(h *match.Hook) string {
	return "connect a host with an identity of spec.hosts of its HookRoute" + granted(h)
}

func granted(h *match.Hook) string {
	if len(h.Route.Hosts) == 0 {
		return ", which names none"
	}
	text := " (" + firstOf(h.Route.Hosts) + ")"
	if len(h.Route.Authorities) > 0 {
		text += " and an authority of its spec.authorities"
	}
	return text
}
