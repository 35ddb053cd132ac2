// Package registration plans the objects by which a cluster's own API server calls the mesh: one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration, made of the hooks that are in force for that
// cluster. Each webhook in them is an entry; its path names the cluster, the stage and the entry, and the plan: the entry's
// timeoutSeconds and the hooks that the entries of the cluster were made from (match.Entry). Objects in a cluster are older than
// the configuration of the mesh, and by the plan a dispatcher knows how much older. Which validating hooks an entry calls
// depends on it (match.Hook.In). Mutating hooks need no plan: each of their entries calls all of them. Until the entries are made
// again after a change, the API server applies the old failurePolicy to a failure of an entry, and the old rules.
//
// Why there are several entries:
//
//   - A webhook has one failurePolicy, so fail-closed and fail-open hooks need an entry each. Validating hooks are
//     called for both entries, each entry for its own hooks.
//   - Mutating hooks of both policies run in one order on one object, so the split is by request: a request that rules of a fail-closed
//     hook cover, in the namespaces that it may select, goes to a fail-closed entry with all mutating hooks, and the rest to fail-open ones.
//   - A webhook has one namespaceSelector, so fail-closed hooks of different selectors that never meet in a request have entries of their own.
//   - Requests that always fail open in the cluster (match.Bypass.FailOpen) are divided from the others of each fail-closed entry by
//     a condition, and have an entry of their own with the same hooks, whose failures do not count.
//   - An API server does not tell a reinvocation from a first call, so hooks with reinvocationPolicy IfNeeded have
//     entries of their own, behind the entries of the whole chain.
//
// The rules of an entry are the union of its hooks' rules and never more. A resource that the cluster serves in several
// versions or groups is one request in all of them. An entry has matchPolicy Equivalent if some hook of it has, so that the API
// server also brings versions that the plan does not know. A condition keeps out brought requests for which no hook would have
// been called. Versions that a hook names are in the rules of the entry that takes them, so that they come as
// they are; the mesh converts for the others. If more is taken for the same than is, no hook loses a request or gets one
// twice; if less is, mutating entries may share requests.
//
// The package is pure: it reads a snapshot and returns objects. Its functions may be called from any goroutine.
package registration

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Registration has the objects for a cluster's API server. Both are always there, so that applying them also removes
// entries that no hook needs any more. They belong to the caller.
type Registration struct {
	Objects

	// Findings tell the operator about problems before the objects are applied, in the order of the hooks.
	Findings []match.Finding
}

// Plan makes the registration of a cluster from the hooks of a snapshot. Equal hooks and options give equal objects,
// whatever else the configuration holds. The error is about the options or the name of the cluster.
func Plan(s *match.Snapshot, cluster string, o Options) (*Registration, error) {
	o, err := o.complete(cluster)
	if err != nil {
		return nil, err
	}
	return planWithin(func(most int) (*Registration, bool) {
		p := newPlanner(s, cluster, o, most)
		if p.tooMany {
			return nil, false
		}
		r := p.plan(s)
		return r, r.fits()
	}), nil
}

// plan makes the registration of the hooks that the planner has resolved.
func (p *planner) plan(s *match.Snapshot) *Registration {
	validating := p.hooks(s, admissionv1.Stage_STAGE_VALIDATE)
	mutating := p.hooks(s, admissionv1.Stage_STAGE_MUTATE)
	again := keep(mutating, func(h *match.Hook) bool { return h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy })
	p.inspect(append(slices.Clone(mutating), validating...))
	p.widened()

	r := &Registration{Objects: Objects{
		Mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: p.meta()},
		Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: typeMeta("ValidatingWebhookConfiguration"), ObjectMeta: p.meta()},
	}}
	entries := append(p.byRequest(admissionv1.Stage_STAGE_MUTATE, mutating), p.byRequest(admissionv1.Stage_STAGE_REINVOKE, again)...)
	for _, e := range entries {
		r.Mutating.Webhooks = append(r.Mutating.Webhooks, p.mutating(e))
	}
	for _, e := range p.byPolicy(admissionv1.Stage_STAGE_VALIDATE, validating) {
		r.Validating.Webhooks = append(r.Validating.Webhooks, p.validating(e))
	}
	r.Findings = p.findings
	return r
}

// planner makes one registration, and collects its findings.
type planner struct {
	options  Options
	cluster  string
	planned  []*match.Hook
	bypass   *match.Bypass // nil exempts nothing
	most     int           // combinations of one rule
	tooMany  bool          // hooks name more than there is room for
	families families
	written  map[*match.Hook][]atom // the requests that its rules name, less those that never come to the mesh
	reach    map[*match.Hook][]atom // the requests that each hook covers, in all versions
	findings []match.Finding
}

func newPlanner(s *match.Snapshot, cluster string, o Options, most int) *planner {
	serving := keep(s.Hooks(), func(h *match.Hook) bool { return h.Serves(cluster) })
	p := &planner{options: o, cluster: cluster, planned: s.EntryHooks(cluster), bypass: s.Bypass(cluster), most: most}
	p.resolve(serving)
	return p
}

// hooks are the hooks of a stage that serve the cluster.
func (p *planner) hooks(s *match.Snapshot, stage admissionv1.Stage) []*match.Hook {
	return keep(s.Hooks(), func(h *match.Hook) bool { return h.EntryStage() == stage && h.Serves(p.cluster) })
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// meta names the objects. Nothing in it changes with the configuration: a difference between two registrations is a
// difference of their entries.
func (p *planner) meta() metav1.ObjectMeta { return Meta(p.options.Name, p.cluster) }

// Meta names an object that is made in a cluster for its connection with the mesh. MadeFor recognises it.
func Meta(name, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"app.kubernetes.io/managed-by": "portcullis"},
		Annotations: map[string]string{clusterAnnotation: cluster},
	}
}

// describe is the entry in findings.
func (e entry) describe() string { return fmt.Sprintf("entry %s/%s", match.StageName(e.stage), e.name) }

// path is where an entry is served that has so much time.
func (p *planner) path(e entry, seconds int32) string {
	planned := match.NewEntry(e.name, time.Duration(seconds)*time.Second, p.planned, p.bypass)
	return fmt.Sprintf("%s/v1/clusters/%s/%s%s/%s", p.options.URL, p.cluster, p.options.capabilitySegments(), match.StageName(e.stage), planned)
}

// trialEntry is the entry of a trial. It is neither fail-closed nor fail-open, so that no dispatcher takes it for the entries in use.
const trialEntry = "trial"

// TrialAddress is where the API server of a cluster calls the mesh to show that it can. Every validating hook may be asked there. The
// error is about the options or the name of the cluster.
func TrialAddress(cluster string, o Options) (admissionregistrationv1.WebhookClientConfig, error) {
	o, err := o.complete(cluster)
	if err != nil {
		return admissionregistrationv1.WebhookClientConfig{}, err
	}
	url := fmt.Sprintf("%s/v1/clusters/%s/%s%s/%s", o.URL, cluster, o.capabilitySegments(), match.StageName(admissionv1.Stage_STAGE_VALIDATE), trialEntry)
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: o.CABundle}, nil
}
