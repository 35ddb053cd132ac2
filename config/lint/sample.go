package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// sample is a request that somebody could send. It is comparable.
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
					if !next.settle(rule.Scope) {
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

// known is a name, or what stands for the wildcard.
func known(name, wild string) string {
	if name == wildcard {
		return wild
	}
	return name
}

// settle decides which resource it is; false where that cannot be told.
func (r *sample) settle(scope *admissionregistrationv1.ScopeType) bool {
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
	r.namespaced = (scope == nil || *scope != admissionregistrationv1.ClusterScope) && !isClusterScoped(r.group, name)
	return true
}

// encode is a set of labels, the same for the same labels.
func encode(set labels.Set) string {
	data, _ := json.Marshal(set) //nolint:errchkjson // strings can always be encoded
	return string(data)
}

// attributes are the sample as hooks are matched with it.
func (r *sample) attributes() *match.Attributes {
	name, subresource, _ := strings.Cut(r.resource, "/")
	kind := &admissionv1.GroupVersionKind{Group: r.group, Version: r.version, Kind: "Sample"}
	resource := &admissionv1.GroupVersionResource{Group: r.group, Version: r.version, Resource: name}
	q := &admissionv1.AdmissionRequest{
		Uid: "sample", Operation: r.operation, Kind: kind, RequestKind: kind, Resource: resource, RequestResource: resource,
		SubResource: subresource, RequestSubResource: subresource, Namespace: r.namespace(), Name: "sample", UserInfo: &admissionv1.UserInfo{Username: "sample"},
	}
	if r.operation != "DELETE" {
		q.Object = r.object()
	}
	if r.operation == "UPDATE" || r.operation == "DELETE" {
		q.OldObject = r.object()
	}
	return match.NewAttributes(q, place{labels: decode(r.namespaceLabels)})
}

// object is the object of the sample.
func (r *sample) object() *admissionv1.Object {
	version := strings.TrimPrefix(r.group+"/"+r.version, "/")
	return &admissionv1.Object{Raw: fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Sample","metadata":{"name":"sample","namespace":%q,"labels":%s}}`,
		version, r.namespace(), r.objectLabels)}
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

// place is a cluster of which the labels of one namespace are known.
type place struct {
	match.Unknown

	labels labels.Set
}

// NamespaceLabels implements match.Cluster.
func (p place) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return p.labels, nil
}
