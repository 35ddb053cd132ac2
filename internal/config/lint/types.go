package lint

import (
	"context"
	"crypto/sha256"
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
	schemas, digest := schemasOf(objects)
	checker := typecheck.New(schemas)
	for i := range objects {
		o := &objects[i]
		if !only(o.Key) {
			continue
		}
		p := o.Typed()
		if p == nil {
			continue
		}
		for _, w := range c.of(ctx, checker, o.Digest+digest, p) {
			all = append(all, warning(CodeTypeCheck, o.Key.String()+" "+w.Field, "%s", w.String()))
		}
	}
	return all
}

// schemasOf are the kinds of Kubernetes, and of the CustomResourceDefinitions in Cluster documents. The digest is of these documents.
func schemasOf(objects []config.Object) (typecheck.Schemas, string) {
	schemas, digest := typecheck.NewCustom(), sha256.New()
	for i := range objects {
		if c := objects[i].Cluster; c != nil && len(c.Spec.CustomResourceDefinitions) > 0 {
			digest.Write([]byte(objects[i].Digest))
			for j := range c.Spec.CustomResourceDefinitions {
				schemas.Add(&c.Spec.CustomResourceDefinitions[j])
			}
		}
	}
	return schemas, string(digest.Sum(nil))
}

// of returns the warnings about a policy. The digest is of all that they depend on.
func (c *TypeChecks) of(ctx context.Context, checker *typecheck.Checker, digest string, p *typecheck.Policy) []typecheck.Warning {
	if c == nil {
		found, _ := checker.Check(ctx, p)
		return found
	}
	c.mu.Lock()
	known, ok := c.known[digest]
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
	c.known[digest] = found
	return found
}
