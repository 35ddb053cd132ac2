package adapt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
)

// plan has the hooks of an adapted webhook.
type plan struct {
	hooks []adaptedHook
	ready *remote.Address // nil without one
}

// adaptedHook is a hook and its webhook.
type adaptedHook struct {
	name      string
	mutates   bool
	at        remote.Address
	version   string
	effects   string // sideEffects; empty if they are not known
	speculate bool
}

// addHooks reads values of a flag, HOOK=URL each.
func (p *plan) addHooks(values []string, flag string, mutates bool) error {
	var errs []error
	for _, value := range values {
		name, address, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("%s: %q: want HOOK=URL", flag, value))
			continue
		}
		at, err := remote.ParseAddress(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", flag, name, err))
			continue
		}
		if slices.ContainsFunc(p.hooks, func(h adaptedHook) bool { return h.name == name && h.mutates == mutates }) {
			errs = append(errs, fmt.Errorf("%s: %s is there twice", flag, name))
			continue
		}
		p.hooks = append(p.hooks, adaptedHook{name: name, mutates: mutates, at: at, version: "v1"})
	}
	return errors.Join(errs...)
}

// setVersions reads the values of --review-version.
func (p *plan) setVersions(values []string) error {
	versions := []string{"v1", "v1beta1", "v1alpha1"}
	return p.setEach("--review-version", values, versions, "v1, v1beta1 or v1alpha1, or HOOK=VERSION", func(h *adaptedHook, version string) error {
		if h.version = version; version == "v1alpha1" && h.mutates {
			return fmt.Errorf("--review-version: %s mutates, which v1alpha1 has no way to express", h.name)
		}
		return nil
	})
}

// setSideEffects reads the values of --side-effects.
func (p *plan) setSideEffects(values []string) error {
	effects := []string{"None", "NoneOnDryRun"}
	return p.setEach("--side-effects", values, effects, "None or NoneOnDryRun, or HOOK=None", func(h *adaptedHook, effects string) error {
		h.effects = effects
		return nil
	})
}

// setEach reads values of a flag, VALUE or HOOK=VALUE each. A value without a hook is for all hooks, wherever it stands.
func (p *plan) setEach(flag string, values, allowed []string, want string, set func(h *adaptedHook, value string) error) error {
	var errs []error
	slices.SortStableFunc(values, func(a, b string) int { return strings.Count(a, "=") - strings.Count(b, "=") })
	for _, text := range values {
		name, value, forOne := strings.Cut(text, "=")
		if !forOne {
			name, value = "", text
		}
		if !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("%s: %q: give %s", flag, text, want))
			continue
		}
		found := !forOne
		for i := range p.hooks {
			if h := &p.hooks[i]; !forOne || h.name == name {
				found = true
				errs = append(errs, set(h, value))
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s: neither --validate nor --mutate has %s", flag, name))
		}
	}
	return errors.Join(errs...)
}

func (p *plan) setSpeculation(names []string) error {
	var errs []error
	for _, name := range names {
		at := slices.IndexFunc(p.hooks, func(h adaptedHook) bool { return h.name == name && h.mutates })
		if at < 0 {
			errs = append(errs, fmt.Errorf("--speculate: --mutate has no %s", name))
			continue
		}
		p.hooks[at].speculate = true
	}
	return errors.Join(errs...)
}

// addresses returns the addresses of the hooks and of the readiness check.
func (p *plan) addresses() []remote.Address {
	var out []remote.Address
	for _, h := range p.hooks {
		out = append(out, h.at)
	}
	if p.ready != nil {
		out = append(out, *p.ready)
	}
	return out
}
