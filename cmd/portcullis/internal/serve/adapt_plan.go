package serve

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
)

// adaptPlan has the hooks of an adapted webhook.
type adaptPlan struct {
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
func (p *adaptPlan) addHooks(values []string, flag string, mutates bool) error {
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

// setVersions reads the values of --review-version. One without a hook is for all hooks, wherever it stands.
func (p *adaptPlan) setVersions(values []string) error {
	var errs []error
	slices.SortStableFunc(values, func(a, b string) int { return strings.Count(a, "=") - strings.Count(b, "=") })
	for _, value := range values {
		hook, version, forOne := strings.Cut(value, "=")
		if !forOne {
			hook, version = "", value
		}
		if !slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version) {
			errs = append(errs, fmt.Errorf("--review-version: %q: give v1, v1beta1 or v1alpha1, or HOOK=VERSION", value))
			continue
		}
		errs = append(errs, p.setVersion(hook, version))
	}
	return errors.Join(errs...)
}

// setVersion sets the version of the hooks of a name, or of all.
func (p *adaptPlan) setVersion(name, version string) error {
	found := false
	for i := range p.hooks {
		h := &p.hooks[i]
		if name != "" && h.name != name {
			continue
		}
		found = true
		if h.version = version; version == "v1alpha1" && h.mutates {
			return fmt.Errorf("--review-version: %s mutates, which v1alpha1 has no way to express", h.name)
		}
	}
	if name != "" && !found {
		return fmt.Errorf("--review-version: neither --validate nor --mutate has %s", name)
	}
	return nil
}

// setSideEffects reads the values of --side-effects. One without a hook is for all hooks, wherever it stands.
func (p *adaptPlan) setSideEffects(values []string) error {
	var errs []error
	slices.SortStableFunc(values, func(a, b string) int { return strings.Count(a, "=") - strings.Count(b, "=") })
	for _, value := range values {
		hook, effects, forOne := strings.Cut(value, "=")
		if !forOne {
			hook, effects = "", value
		}
		if effects != "None" && effects != "NoneOnDryRun" {
			errs = append(errs, fmt.Errorf("--side-effects: %q: give None or NoneOnDryRun, or HOOK=None", value))
			continue
		}
		found := false
		for i := range p.hooks {
			if hook == "" || p.hooks[i].name == hook {
				p.hooks[i].effects, found = effects, true
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("--side-effects: neither --validate nor --mutate has %s", hook))
		}
	}
	return errors.Join(errs...)
}

func (p *adaptPlan) setSpeculation(names []string) error {
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
func (p *adaptPlan) addresses() []remote.Address {
	var out []remote.Address
	for _, h := range p.hooks {
		out = append(out, h.at)
	}
	if p.ready != nil {
		out = append(out, *p.ready)
	}
	return out
}
