package match

import (
	"cmp"
	"fmt"
	"slices"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Input is a configuration to compile. Objects are defaulted and validated already; Compile keeps them,
// and they must not change afterwards.
type Input struct {
	// Revision is the digest of the configuration.
	Revision string
	// Objects are the webhook configurations, in any order.
	Objects []Object
	// Routes are the ways in which hooks are called, in any order. Hooks without one are called as their clientConfig says, and
	// fail over streams if that is empty.
	Routes []RouteBinding
	// Bypasses exempt requests from all hooks, by declared cluster; nil for a cluster without one.
	Bypasses map[string]*Bypass
	// Last is a snapshot from before. Unchanged objects are taken from it, and hooks may be shared with it; nothing
	// else depends on it. nil compiles everything.
	Last *Snapshot
}

// RouteBinding binds a route to hooks. A binding that names the hook beats one for its whole configuration, and then a binding with a stage beats a
// binding without.
type RouteBinding struct {
	// Name is the name of the document, for findings.
	Name string
	// Source is where that document was read from, for findings.
	Source string
	// Configuration is metadata.name of the configuration.
	Configuration string
	// Hook is webhooks[].name; empty for every hook of the configuration.
	Hook string
	// Stage is STAGE_INITIALIZE, STAGE_MUTATE or STAGE_VALIDATE; STAGE_UNSPECIFIED for whichever kind of configuration has the name.
	Stage admissionv1.Stage
	// Digest stands for the whole content of the document, as [Object.Digest] does.
	Digest string
	// Route is how the hooks are called.
	Route Route

	names []string // of the bindings that it stands for, once it is filed
}

// Compile makes a snapshot of in. It never fails as a whole: an object that cannot be compiled is left out, alone, and
// reported by a finding of SeverityError with CodeRejected.
func Compile(in Input) (*Snapshot, []Finding) {
	return compile(in, NewExpressions)
}

// compile is Compile with the compiler for matchConditions, which is made when the first object comes without compiled ones.
func compile(in Input, expressions func() *Expressions) (*Snapshot, []Finding) {
	r, findings := newRoutes(in.Routes)
	c := &compiler{
		newExpressions: expressions, routes: r, findings: findings, objects: make(map[objectKey]*compiled, len(in.Objects)), last: in.Last,
	}
	for _, o := range ordered(in.Objects) {
		c.object(o)
	}
	c.orderInitializers()
	c.findings = append(c.findings, r.unused(c.hooks)...)
	return &Snapshot{
		revision: in.Revision, hooks: c.hooks, index: newIndex(c.hooks), objects: c.objects, bypasses: in.Bypasses,
	}, c.findings
}

// ordered are the objects in the order in which Kubernetes calls their hooks (SEMANTICS C1), initializers before all others, and policies before
// webhooks, as the plugins of kube-apiserver are ordered (AllOrderedPlugins of k8s.io/kubernetes/pkg/kubeapiserver/options). Of one name,
// those for all clusters come first. The order of the input decides nothing.
func ordered(objects []Object) []Object {
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(b.initializers(), a.initializers()), cmp.Compare(b.policies(), a.policies()),
			cmp.Compare(a.key().name, b.key().name), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.key().stage, b.key().stage), cmp.Compare(a.Source, b.Source))
	})
	return objects
}

// compiler collects the hooks of all objects.
type compiler struct {
	newExpressions func() *Expressions
	expressions    *Expressions // nil until needed
	last           *Snapshot    // nil for the first
	routes         routes
	objects        map[objectKey]*compiled
	hooks          []*Hook
	findings       []Finding
}

// object compiles o and keeps all of its hooks, or none.
func (c *compiler) object(o Object) {
	if first, ok := c.objects[o.key()]; ok {
		c.report(o, SeverityError, CodeDuplicate, "", fmt.Sprintf("%s has the same object; remove one of the two", cmp.Or(first.source, "another document")))
		return
	}
	made := c.known(o)
	if made == nil {
		var err error
		if made, err = c.tryObject(o); err != nil {
			c.report(o, SeverityError, CodeRejected, "", err.Error())
			return
		}
	}
	made = made.from(len(c.hooks))
	c.objects[o.key()] = made
	c.hooks = append(c.hooks, made.hooks...)
}

// tryObject turns a panic into an error: no object may take the others down with it.
func (c *compiler) tryObject(o Object) (made *compiled, err error) {
	defer func() {
		if p := recover(); p != nil {
			made, err = nil, fmt.Errorf("the object cannot be compiled: panic: %v", p)
		}
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	made, earlier := &compiled{digest: o.Digest, source: o.Source, pending: o.Pending}, len(c.findings)
	for i, w := range o.webhooks() {
		h := c.hook(o, i, &w)
		h.ordinal = len(c.hooks) + i
		made.hooks, made.routes = append(made.hooks, h), append(made.routes, c.routes.of(h.ID).identity())
	}
	made.findings = slices.Clone(c.findings[earlier:])
	return made, nil
}

func (c *compiler) report(o Object, s Severity, code, field, message string) {
	c.findings = append(c.findings, Finding{
		Severity: s, Code: code, Source: o.Source, Path: o.key().String() + field, Message: message,
	})
}
