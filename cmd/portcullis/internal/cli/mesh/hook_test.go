package mesh

import (
	"testing"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestTheVerdictOfAHookIsItsFirstObstacle(t *testing.T) {
	with := func(hosts uint32, change func(*configv1.Hook)) *configv1.Hook {
		h := streamed("a", hosts, configv1.Hook_STATE_IN_ROTATION)
		if h.Unserved = hosts == 0; h.GetUnserved() {
			h.Message = "connect a host"
		}
		change(h)
		return h
	}
	asIs := func(*configv1.Hook) {}
	in := func(s configv1.Hook_State) func(*configv1.Hook) { return func(h *configv1.Hook) { h.State = s } }
	for want, all := range map[string]OnDispatchers{
		"is called, and served by 2 hosts": {with(2, asIs)},
		"is called, and served by https://web": {with(0, func(h *configv1.Hook) {
			h.Streamed, h.Unserved, h.Url = false, false, "https://web"
		})},
		"is called, and no host answers: requests that it covers are refused: connect a host": {with(0, asIs), with(0, asIs)},
		"is called, and no host answers on 1 of 2 dispatchers: requests that it covers pass unchecked there: connect a host": {
			with(1, func(h *configv1.Hook) { h.FailurePolicy = "Ignore" }), with(0, asIs),
		},
		"is called, and no host answers: objects that it covers are created without it: connect a host": {with(0, func(h *configv1.Hook) {
			h.FailurePolicy, h.Hook = "Ignore", &configv1.HookRef{Object: &configv1.ConfigKey{Kind: "InitializerConfiguration", Name: "i"}}
		})},
		"is called, and its last host has just left: calls wait a moment for another one": {with(0, func(h *configv1.Hook) { h.Unserved = false })},
		"is not called yet: no host is ready": {with(1, func(h *configv1.Hook) {
			h.State, h.Message = configv1.Hook_STATE_PENDING, "no host is ready"
		})},
		"is in shadow, where it decides nothing; served by 1 host":         {with(1, in(configv1.Hook_STATE_SHADOW))},
		"is in shadow, and not served: it records nothing: connect a host": {with(0, in(configv1.Hook_STATE_SHADOW))},
		"was removed: no review begins with it any more":                   {with(1, in(configv1.Hook_STATE_REMOVED))},
	} {
		if got := all.Verdict(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
