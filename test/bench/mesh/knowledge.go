package mesh

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// knowledge is the configuration, and a cluster with one namespace.
type knowledge struct {
	match.Unknown

	scenario    scenario.Scenario
	client      scenario.Client // of webhooks; Nowhere for streams
	hosts       Hosts
	snapshot    atomic.Pointer[match.Snapshot]
	equivalents *equivalents.Builtin
}

// newKnowledge compiles the configuration of the scenario.
func newKnowledge(s scenario.Scenario, client scenario.Client, hosts Hosts) (*knowledge, error) {
	k := &knowledge{scenario: s, client: client, hosts: hosts, equivalents: equivalents.Known()}
	snapshot, err := k.compile(0)
	k.snapshot.Store(snapshot)
	return k, err
}

// compile makes one revision of the configuration, which is the same in all revisions.
func (k *knowledge) compile(revision int) (*match.Snapshot, error) {
	in := match.Input{Revision: fmt.Sprintf("sha256:%08x", revision)}
	if k.hosts == Policies {
		in.Objects = k.policies()
		return compiled(in)
	}
	add := func(name string, o match.Object) {
		in.Objects = append(in.Objects, o)
		if k.hosts == Webhooks {
			return
		}
		in.Routes = append(in.Routes, match.RouteBinding{Configuration: name, Route: match.Route{
			Stream: true, Hosts: []string{pki.Identity}, Speculate: k.scenario.Speculate,
			Hedge: match.Hedge{Enabled: k.scenario.Hedge},
		}})
	}
	validating, mutating := k.scenario.Configurations(k.client)
	for _, c := range validating {
		add(c.Name, match.Object{Validating: c})
	}
	for _, c := range mutating {
		add(c.Name, match.Object{Mutating: c})
	}
	return compiled(in)
}

// policies are the policies in the place of hooks.
func (k *knowledge) policies() (all []match.Object) {
	compiler := policy.NewCompiler()
	for _, p := range k.scenario.Policies() {
		all = append(all, match.Object{Policy: compiler.Compile(p.Document).Bind(p.Bindings)})
	}
	return all
}

// compiled is the snapshot of a configuration.
func compiled(in match.Input) (*match.Snapshot, error) {
	snapshot, findings := match.Compile(in)
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			return nil, fmt.Errorf("the configuration is bad: %v", f)
		}
	}
	return snapshot, nil
}

// Update puts another revision of the same configuration into force, as it is done with each change of any part of it, and
// says how long it took to compile, and then until all sessions were told. It must not be called concurrently.
func (m *Mesh) Update(revision int) (compiling, spreading time.Duration, err error) {
	begun := time.Now()
	snapshot, err := m.known.compile(revision)
	if err != nil {
		return 0, 0, fmt.Errorf("mesh: %w", err)
	}
	compiled := time.Now()
	m.router.Update(snapshot)
	m.known.snapshot.Store(snapshot)
	return compiled.Sub(begun), time.Since(compiled), nil
}

// Acquire implements dispatcher.Snapshots.
func (k *knowledge) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return k.snapshot.Load(), "", nil
}

// Release implements [dispatcher.Snapshots].
func (*knowledge) Release(*match.Snapshot) {}

// Cluster implements dispatcher.Clusters.
func (k *knowledge) Cluster(string) match.Cluster { return k }

// NamespaceLabels implements match.Cluster.
func (k *knowledge) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{"kubernetes.io/metadata.name": scenario.Namespace}, nil
}

// Equivalents implements match.Cluster.
func (k *knowledge) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	return k.equivalents.For(resource, subresource), nil
}
