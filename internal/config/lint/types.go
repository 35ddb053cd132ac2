package lint

import (
	"context"
	"sync"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/typecheck"
)

// maxTypeChecks bounds the policies whose warnings are kept.
const maxTypeChecks = 10_000

// TypeChecks keeps the warnings of the type checker about policies: a policy that has not changed is not checked again. The zero value is ready, and may be
// used concurrently.
type TypeChecks struct {
	mu    sync.Mutex
	known map[string][]typecheck.Warning // by digest
}

// misfits finds expressions of policies that do not fit to the kinds that they are about. The search ends with ctx.
func (c *TypeChecks) misfits(ctx context.Context, objects []config.Object, only func(config.Key) bool) (all []match.Finding) {
	checker := typecheck.New(typecheck.Builtin{})
	for i := range objects {
		o := &objects[i]
		if !only(o.Key) {
			continue
		}
		p := o.Typed()
		if p == nil {
			continue
		}
		for _, w := range c.of(ctx, checker, o, p) {
			all = append(all, warning(CodeTypeCheck, o.Key.String()+" "+w.Field, "%s", w.String()))
		}
	}
	return all
}

// of returns the warnings about a policy.
func (c *TypeChecks) of(ctx context.Context, checker *typecheck.Checker, o *config.Object, p *typecheck.Policy) []typecheck.Warning {
	if c == nil {
		found, _ := checker.Check(ctx, p)
		return found
	}
	c.mu.Lock()
	known, ok := c.known[o.Digest]
	c.mu.Unlock()
	if ok {
		return known
	}
	found, ok := checker.Check(ctx, p)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) == maxTypeChecks {
		c.known = map[string][]typecheck.Warning{}
	}
	c.known[o.Digest] = found
	return found
}
