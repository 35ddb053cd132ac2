package match

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Attributes is a request as matching sees it. The objects are decoded when a hook asks for their contents, once. It is immutable and may be used
// from any goroutine.
type Attributes struct {
	*request

	object *object
}

// request is the part that stays the same while hooks change the object.
type request struct {
	req       *admissionv1.AdmissionRequest
	cluster   Cluster
	operation operation
	// sent is the version in which the API server sent the objects, requested the version that the client asked for. Both are equal, unless the API
	// server has converted the objects for the entry that led here. The AdmissionReview has them as resource and requestResource.
	sent        conversion.ResourceKind
	requested   *conversion.ResourceKind
	old         *object
	equivalents equivalents
	record      record
	memory      Memory
	evaluator   Evaluator
	bypass      *Bypass // of the cluster; nil for none
	failsOpen   bool    // by the bypass
}

// Memory books the memory of decoded objects. An error is a status that refuses the review. It may be called from any goroutine from which the
// attributes are used.
type Memory interface {
	// Grow books n bytes before they are taken.
	Grow(n int64) error
	// Shrink gives n bytes back.
	Shrink(n int64)
}

// Evaluator bounds the time of evaluations of matchConditions in a review. It belongs to the goroutine that matches.
type Evaluator interface {
	// Evaluate calls evaluate with a context made from ctx, and again if that one ended an evaluation.
	Evaluate(ctx context.Context, evaluate func(context.Context))
}

// unbooked is the memory of attributes without an account.
type unbooked struct{}

func (unbooked) Grow(int64) error { return nil }
func (unbooked) Shrink(int64)     {}

// direct evaluates as long as the context of the look-ups.
type direct struct{}

func (direct) Evaluate(ctx context.Context, evaluate func(context.Context)) { evaluate(ctx) }

// equivalents are the versions of the requested resource, looked up once and only if a hook's rules call for it.
type equivalents struct {
	once sync.Once
	all  []conversion.ResourceKind
	err  error
}

// NewAttributes is a request of a cluster as matching sees it. It keeps req, which must not change afterwards.
func NewAttributes(req *admissionv1.AdmissionRequest, cluster Cluster) *Attributes {
	a := &struct { // each review makes one
		Attributes

		request request
	}{request: request{
		req:       req,
		cluster:   cluster,
		operation: operationOf(req.GetOperation()),
		sent: conversion.ResourceKind{
			Resource: gvr(req.GetResource()), Subresource: req.GetSubResource(), Kind: gvk(req.GetKind()),
		},
		old:    newObject(req.GetOldObject()),
		memory: unbooked{}, evaluator: direct{},
	}}
	r := &a.request
	r.requested = &r.sent
	if asked := req.GetRequestResource(); asked != nil && gvr(asked) != r.sent.Resource {
		r.requested = &conversion.ResourceKind{
			Resource: gvr(asked), Subresource: req.GetSubResource(), Kind: gvk(req.GetRequestKind()),
		}
	}
	a.Attributes = Attributes{request: r, object: newObject(req.GetObject())}
	return &a.Attributes
}

// Booked is the request whose objects are booked when they are decoded. It is called before anything is matched.
func (a *Attributes) Booked(m Memory) *Attributes {
	a.memory = m
	return a
}

// EvaluatedBy is the request whose matchConditions e evaluates. It is called before anything is matched.
func (a *Attributes) EvaluatedBy(e Evaluator) *Attributes {
	a.evaluator = e
	return a
}

// Under is the request in a cluster that has a bypass, or none. It is called before anything is matched.
func (a *Attributes) Under(b *Bypass) *Attributes {
	a.bypass, a.failsOpen = b, b.failsOpen(a.request)
	return a
}

// FailsOpen reports whether the request always fails open by the bypass of its cluster: the failure of a hook with failurePolicy
// Fail has to be treated as if that were Ignore.
func (a *Attributes) FailsOpen() bool { return a.failsOpen }

// ReleaseObject gives back the memory of the object, which is not matched any more.
func (a *Attributes) ReleaseObject() {
	if a.object != nil {
		a.memory.Shrink(a.object.booked.Swap(0))
	}
}

// WithObject is the request with the object as mutated so far (SEMANTICS C3). It keeps raw, which must not change
// afterwards, and shares everything else with a.
func (a *Attributes) WithObject(raw []byte) *Attributes {
	return &Attributes{request: a.request, object: &object{raw: raw}}
}

// Exempt reports whether the request is never sent to hooks: configuration about admission itself, which could lock
// its own repair out, and reviews of identities and permissions, which hooks' own calls depend on (SEMANTICS C19).
func (a *Attributes) Exempt() bool {
	// No conversion leads into the exempt groups or out of them.
	return isAdmissionConfiguration(a.sent.Kind.Group, a.sent.Kind.Kind) ||
		IsIdentityOrAccessReview(a.requested.Resource.Group, a.requested.Resource.Resource)
}

// isAdmissionConfiguration is IsExemptAdmissionConfigurationResource of k8s.io/apiserver. It goes by kind, not by resource.
func isAdmissionConfiguration(group, kind string) bool {
	if group != "admissionregistration.k8s.io" {
		return false
	}
	switch kind {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	}
	return false
}

// IsIdentityOrAccessReview reports whether a resource is a review of an identity or of permissions. Requests about these are never sent to
// hooks, whatever the kind of their object. It is the list of k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion, which Kubernetes
// applies to policies today and to webhooks from 1.37 on (SEMANTICS C19).
func IsIdentityOrAccessReview(group, resource string) bool {
	switch group {
	case "authentication.k8s.io":
		return resource == "selfsubjectreviews" || resource == "tokenreviews"
	case "authorization.k8s.io":
		switch resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}

// versions are the equivalents of the resource that the client asked for, and that one, in the order in which the API server tries
// them. The version that it sent is among them too, even if the cluster does not list it. The slice must not be changed.
func (r *request) versions() ([]conversion.ResourceKind, error) {
	r.equivalents.once.Do(func() {
		equivalents, err := r.cluster.Equivalents(r.requested.Resource, r.requested.Subresource)
		if err == nil && r.converted() && !slices.ContainsFunc(equivalents, r.isSent) {
			equivalents = append(slices.Clone(equivalents), r.sent)
		}
		r.equivalents.all, r.equivalents.err = equivalents, err
	})
	return r.equivalents.all, r.equivalents.err
}

func (r *request) isSent(kind conversion.ResourceKind) bool { return kind.Resource == r.sent.Resource }

// converted reports whether the API server has converted the object to another version than the client asked for.
func (r *request) converted() bool { return r.requested != &r.sent }

// namespaced reports whether rules of scope Namespaced, rather than Cluster, cover the request on resource. A
// Namespace is not namespaced although requests about it carry its own name as their namespace (SEMANTICS C15).
func (r *request) namespaced(resource schema.GroupVersionResource) bool {
	return r.req.GetNamespace() != "" && resource != schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func gvr(r *admissionv1.GroupVersionResource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource()}
}

func gvk(k *admissionv1.GroupVersionKind) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.GetGroup(), Version: k.GetVersion(), Kind: k.GetKind()}
}
