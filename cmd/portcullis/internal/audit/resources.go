package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/discovery"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// Resource is a resource of a cluster, in the version in which it is listed.
type Resource struct {
	schema.GroupVersionResource

	// Kind is the kind of its objects.
	Kind string
	// Namespaced reports whether they are in namespaces.
	Namespaced bool
}

// String is the resource as kubectl names it: pods, deployments.apps.
func (r Resource) String() string { return r.GroupResource().String() }

// names are the ways to name the resource.
func (r Resource) names() []string {
	return []string{r.GroupVersionResource.Resource, r.String(), r.Group + "/" + r.GroupVersionResource.Resource}
}

// Unaudited is a policy, or a part of the cluster, about which an audit says nothing.
type Unaudited struct {
	// Subject is the name of a policy, hook, resource or API group.
	Subject string `json:"subject"`
	// Reason is why.
	Reason string `json:"reason"`
}

// selection are the resources that an audit lists.
type selection struct {
	resources []Resource
	unaudited []Unaudited
	failed    []Unaudited // groups whose API server does not answer
}

// choose chooses the resources that rules of hooks name for a CREATE. only are the names of the wanted resources; none means all.
func (c *Cluster) choose(ctx context.Context, hooks []*match.Hook, only []string) (*selection, error) {
	resources, failed, err := c.discover(ctx)
	if err != nil {
		return nil, err
	}
	s := &selection{}
	for gv, err := range failed {
		s.failed = append(s.failed, Unaudited{gv.String(), fmt.Sprintf("its API server does not tell its resources: %v", err)})
	}
	slices.SortFunc(s.failed, func(a, b Unaudited) int { return cmp.Compare(a.Subject, b.Subject) })
	var known []string
	for _, versions := range resources {
		r, found := c.inVersion(versions, hooks)
		known = append(known, versions[0].names()...)
		if found && (len(only) == 0 || slices.ContainsFunc(r.names(), func(n string) bool { return slices.Contains(only, n) })) {
			s.add(c, r)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--resource %s: the cluster has no such resource%s", name, suggest.DidYouMean(name, known))
		}
	}
	slices.SortFunc(s.resources, func(a, b Resource) int { return cmp.Compare(a.String(), b.String()) })
	s.unaudited = c.unreached(hooks, s.resources, len(only) > 0)
	return s, nil
}

// discover returns the resources whose objects may be listed and created, each in its versions, the preferred one first.
func (c *Cluster) discover(ctx context.Context) (resources [][]Resource, failed map[schema.GroupVersion]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	served, err := discovery.Ask(ctx, c.config, c.client.Transport)
	if err != nil {
		return nil, nil, err
	}
	of := map[string]*metav1.APIResourceList{}
	for _, l := range served.Lists {
		of[l.GroupVersion] = l
	}
	at := map[schema.GroupResource]int{}
	for _, g := range served.Groups {
		for _, v := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...) {
			l := of[v.GroupVersion]
			if l == nil {
				continue
			}
			delete(of, v.GroupVersion) // the preferred version is also in its place
			for _, r := range audited(l) {
				i, ok := at[r.GroupResource()]
				if !ok {
					i, resources = len(resources), append(resources, nil)
					at[r.GroupResource()] = i
				}
				resources[i] = append(resources[i], r)
			}
		}
	}
	return resources, served.Failed, nil
}

// audited are the resources of a list whose objects may be listed and created.
func audited(l *metav1.APIResourceList) (all []Resource) {
	gv, err := schema.ParseGroupVersion(l.GroupVersion)
	if err != nil {
		return nil
	}
	for i := range l.APIResources {
		r := &l.APIResources[i]
		if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") {
			all = append(all, Resource{gv.WithResource(r.Name), r.Kind, r.Namespaced})
		}
	}
	return all
}

// inVersion returns the resource at the beginning of a list in the first version that a rule names.
func (c *Cluster) inVersion(versions []Resource, hooks []*match.Hook) (Resource, bool) {
	for _, r := range versions {
		a := attributesOf(r)
		if slices.ContainsFunc(hooks, func(h *match.Hook) bool { return h.Serves(c.name) && h.Covers(a) }) {
			return r, true
		}
	}
	return Resource{}, false
}

// attributesOf is the creation of some object of a resource.
func attributesOf(r Resource) *match.Attributes {
	request := requestOf(r, &head{})
	if r.Namespaced {
		request.Namespace = "default"
	}
	return match.NewAttributes(request, match.Unknown{})
}

// requestOf is the request for the creation of an object, without the object.
func requestOf(r Resource, h *head) *admissionv1.AdmissionRequest {
	kind := &admissionv1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	resource := &admissionv1.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.GroupVersionResource.Resource}
	request := &admissionv1.AdmissionRequest{
		Operation: offline.OperationCreate, Kind: kind, Resource: resource, RequestKind: kind, RequestResource: resource, Name: h.Metadata.Name,
		Namespace: h.Metadata.Namespace,
	}
	if r.GroupVersionResource == match.NamespaceKind.GroupVersion().WithResource("namespaces") {
		request.Namespace = h.Metadata.Name // as an API server has it
	}
	return request
}

// add adds a resource, unless another group has the same objects: events are in two.
func (s *selection) add(c *Cluster, r Resource) {
	same, err := c.registry.Cluster(c.name).Equivalents(r.GroupVersionResource, "")
	if err == nil {
		for _, other := range s.resources {
			if slices.ContainsFunc(same, func(way conversion.ResourceKind) bool { return way.Resource.GroupResource() == other.GroupResource() }) {
				return
			}
		}
	}
	s.resources = append(s.resources, r)
}

// unreached are the hooks that no listed object reaches. partly: only some resources are listed.
func (c *Cluster) unreached(hooks []*match.Hook, resources []Resource, partly bool) (all []Unaudited) {
	for _, h := range hooks {
		var reason string
		switch {
		case !h.Serves(c.name):
			reason = fmt.Sprintf("it is not for the cluster %q", c.name)
		case !namesCreate(h):
			reason = "it is not about the creation of objects"
		case !namesObjects(h):
			reason = "it is about subresources alone"
		case !partly && !slices.ContainsFunc(resources, func(r Resource) bool { return c.reaches(h, r) }):
			reason = "the cluster serves none of its resources in a version that its rules name"
		default:
			continue
		}
		all = append(all, Unaudited{subjectOf(h), reason})
	}
	return all
}

// reaches reports whether a hook sees objects of a resource, also by an equivalent.
func (c *Cluster) reaches(h *match.Hook, r Resource) bool {
	if h.Covers(attributesOf(r)) {
		return true
	}
	ways, err := c.registry.Cluster(c.name).Equivalents(r.GroupVersionResource, "")
	return err == nil && h.MatchPolicy == admissionregistrationv1.Equivalent && slices.ContainsFunc(ways, func(w conversion.ResourceKind) bool {
		return h.Covers(attributesOf(Resource{w.Resource, w.Kind.Kind, r.Namespaced}))
	})
}

func namesCreate(h *match.Hook) bool {
	return slices.ContainsFunc(h.Rules(), func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Operations, admissionregistrationv1.OperationAll) || slices.Contains(r.Operations, admissionregistrationv1.Create)
	})
}

func namesObjects(h *match.Hook) bool {
	return slices.ContainsFunc(h.Rules(), func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.Resources, func(name string) bool {
			_, sub, _ := strings.Cut(name, "/")
			return sub == "" || sub == "*"
		})
	})
}

// subjectOf names a hook: KIND/NAME of a policy.
func subjectOf(h *match.Hook) string {
	if h.Policy != nil {
		return h.ID.Configuration
	}
	return h.ID.Name
}

// lists are the lists of the resources in some namespaces; in all if none is named.
func (s *selection) lists(namespaces []string) (all []list, err error) {
	for _, r := range s.resources {
		switch {
		case len(namespaces) == 0:
			all = append(all, list{Resource: r})
		case r.Namespaced:
			for _, n := range namespaces {
				all = append(all, list{r, n})
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is nothing to audit: no policy is about the creation of objects of this cluster, as far as the flags select them")
	}
	return all, nil
}
