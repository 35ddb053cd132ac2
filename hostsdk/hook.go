package hostsdk

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Hook is a hook with its handler, for [New]. [Validate], [Mutate] and [Initialize] make one.
type Hook struct {
	id      hookID
	handler Handler
	options []HookOption
}

// Validate is a validating hook, by the name that it has in its configuration.
func Validate(name string, handler Handler, options ...HookOption) Hook {
	return Hook{hookID{name, admissionv1.Stage_STAGE_VALIDATE}, handler, options}
}

// Mutate is a mutating hook, by the name that it has in its configuration.
func Mutate(name string, handler Handler, options ...HookOption) Hook {
	return Hook{hookID{name, admissionv1.Stage_STAGE_MUTATE}, handler, options}
}

// Initialize is an initializer, by the name that it has in its InitializerConfiguration. The handler is called as a mutating hook's handler,
// for objects to be created only, while the object is staged: a patch initializes the object, no patch leaves it as it is, and a denial refuses
// it. Each object is handled by one replica; another takes it over if that one is lost.
func Initialize(name string, handler Handler, options ...HookOption) Hook {
	return Hook{hookID{name, admissionv1.Stage_STAGE_INITIALIZE}, handler, options}
}

// HookOption says more about one hook.
type HookOption interface{ apply(h *hook) }

type hookOption func(h *hook)

func (f hookOption) apply(h *hook) { f(h) }

// Speculate agrees to calls whose verdicts may be thrown away: the dispatcher may then ask a mutating hook before the
// hooks in front of it have answered. Only for handlers without side effects.
func Speculate() HookOption { return hookOption(func(h *hook) { h.speculate = true }) }

// ReadyWhen sets a probe: a new hook gets its first call once the probe has returned nil, for example when caches are
// filled. The probe has 5 s. Without it a hook is ready as soon as the host is connected.
func ReadyWhen(probe func(ctx context.Context) error) HookOption {
	return hookOption(func(h *hook) { h.probe = probe })
}

// check returns the fault of a hook, if it has one.
func (h *Hook) check() error {
	switch {
	case h.id.name == "" || valid(h.id.name) != h.id.name:
		return fmt.Errorf("hostsdk: hook name %q is empty or not valid UTF-8", h.id.name)
	case h.handler == nil:
		return fmt.Errorf("hostsdk: hook %q has no handler", h.id.name)
	case slices.Contains(h.options, nil):
		return fmt.Errorf("hostsdk: hook %q has an option that is nil", h.id.name)
	default:
		return nil
	}
}

// registered is the hook as a host keeps it.
func (h *Hook) registered() *hook {
	registered := &hook{id: h.id, span: "handle " + h.id.name, handler: h.handler, attributes: newHookAttributes(h.id)}
	for _, o := range h.options {
		o.apply(registered)
	}
	return registered
}
