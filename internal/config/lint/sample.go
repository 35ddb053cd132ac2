package lint

import (
	"encoding/json"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// sample is a request that a client could send. It is comparable.
type sample struct {
	cluster                       string // empty: any
	operation                     string
	group, version, resource      string // resource is one with its subresource
	namespaced                    bool
	namespaceLabels, objectLabels string // as JSON
}

// samplesOf are requests that the rules and selectors of a hook select, at most MaxSamples; none where its selectors
// contradict themselves.
func samplesOf(h *match.Hook) []sample {
	namespaceLabels, ok := solve(h.NamespaceSelector(), corev1.LabelMetadataName)
	if !ok {
		return nil
	}
	objectLabels, ok := solve(h.ObjectSelector())
	if !ok {
		return nil
	}
	base := sample{namespaceLabels: encode(namespaceLabels), objectLabels: encode(objectLabels)}
	var all []sample
	for _, cluster := range orAny(h.Route.Clusters) {
		base.cluster = cluster
		for i := range h.Rules() {
			if all = append(all, base.of(&h.Rules()[i])...); len(all) >= MaxSamples {
				return all[:MaxSamples]
			}
		}
	}
	return all
}

// orAny is a list of clusters that is never empty.
func orAny(clusters []string) []string {
	if len(clusters) == 0 {
		return []string{""}
	}
	return clusters
}

// of are the samples of a rule, at most about MaxSamples. Wildcards stand for the creation of a Pod, or are left out: a hook
// that has them meets the samples of others.
func (r *sample) of(rule *admissionregistrationv1.RuleWithOperations) []sample {
	var all []sample
	next := *r
	for _, operation := range rule.Operations {
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					next.operation, next.group, next.version, next.resource = known(string(operation), "CREATE"), known(group, ""), known(version, "v1"), resource
					if !next.chooseResource(rule.Scope) {
						continue
					}
					if all = append(all, next); len(all) >= MaxSamples {
						return all
					}
				}
			}
		}
	}
	return all
}

// known is a name, or the given stand-in for the wildcard.
func known(name, wild string) string {
	if name == wildcard {
		return wild
	}
	return name
}

// chooseResource replaces wildcards in the resource; false where no resource is certain to exist.
func (r *sample) chooseResource(scope *admissionregistrationv1.ScopeType) bool {
	name, subresource, _ := strings.Cut(r.resource, "/")
	if name == wildcard {
		if r.group != "" {
			return false
		}
		name = "pods"
	}
	if r.resource = name; subresource != "" && subresource != wildcard {
		r.resource += "/" + subresource
	}
	r.namespaced = (scope == nil || *scope != admissionregistrationv1.ClusterScope) && !IsClusterScoped(r.group, name)
	return true
}

// encode is a set of labels, the same for the same labels.
func encode(set labels.Set) string {
	data, _ := json.Marshal(set) //nolint:errchkjson // strings can always be encoded
	return string(data)
}

// attributes are the sample as hooks are matched with it.
func (r *sample) attributes() *match.Attributes {
	w := write{
		operation: r.operation, group: r.group, version: r.version, kind: "Sample", resource: r.resource,
		namespace: r.namespace(), name: "sample", user: "sample", objectLabels: r.objectLabels,
	}
	return w.attributes(decode(r.namespaceLabels))
}

// namespace is where the sample is; empty when it is in none.
func (r *sample) namespace() string {
	if !r.namespaced {
		return ""
	}
	return decode(r.namespaceLabels)[corev1.LabelMetadataName]
}

func decode(text string) labels.Set {
	var set labels.Set
	_ = json.Unmarshal([]byte(text), &set) // encode wrote it
	return set
}

// describe is the sample for people.
func (r *sample) describe() string {
	what := r.operation + " of " + r.resource
	if r.group != "" {
		what += "." + r.group
	}
	if r.objectLabels != "{}" {
		what += " with labels " + r.objectLabels
	}
	if r.namespaced {
		what += " in namespace " + r.namespace()
		if more := decode(r.namespaceLabels); len(more) > 1 {
			delete(more, corev1.LabelMetadataName)
			what += " with labels " + encode(more)
		}
	}
	if r.cluster != "" {
		what += " of cluster " + r.cluster
	}
	return what
}
