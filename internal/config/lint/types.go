package lint

import (
	"context"
	"crypto/sha256"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

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

// typeErrors finds type errors in the expressions of policies. The search ends with ctx. With a nil receiver, which no later call follows, a finding names
// each policy that is past the bound.
func (c *TypeChecks) typeErrors(
	ctx context.Context, objects []config.Object, definitions []apiextensionsv1.CustomResourceDefinition, only func(config.Key) bool,
) (all []match.Finding) {
	schemas, digest := schemasOf(objects)
	for i := range definitions {
		schemas.Add(&definitions[i])
	}
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
		found, ok := c.of(ctx, checker, o.Digest+digest, p)
		for _, w := range found {
			all = append(all, warning(CodeTypeCheck, o.Key.String()+" "+w.Field, "%s", w.String()))
		}
		if !ok && c == nil && ctx.Err() == nil {
			all = append(all, warning(CodeTypeCheck, o.Key.String(), "the types of its expressions are not checked: with the policies before it, each counted for "+
				"all of its kinds, and the schemas of custom resources they have more than %d bytes; lint fewer files at a time", typecheck.MaxTotalWork))
		}
	}
	return all
}

// schemasOf are the kinds of Kubernetes, and of the CustomResourceDefinitions in Cluster documents. The digest is of these documents.
func schemasOf(objects []config.Object) (*typecheck.Custom, string) {
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

// of returns the warnings about a policy; ok is false if it was not checked. The digest is of the policy and the schemas.
func (c *TypeChecks) of(ctx context.Context, checker *typecheck.Checker, digest string, p *typecheck.Policy) (found []typecheck.Warning, ok bool) {
	if c == nil {
		return checker.Check(ctx, p)
	}
	c.mu.Lock()
	found, ok = c.known[digest]
	c.mu.Unlock()
	if ok {
		return found, true
	}
	if found, ok = checker.Check(ctx, p); !ok {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) == maxTypeChecks {
		c.known = map[string][]typecheck.Warning{}
	}
	c.known[digest] = found
	return found, true
}
