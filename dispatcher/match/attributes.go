package match

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Attributes is a request as matching sees it. What needs a look into the objects is decoded when a hook asks for it,
// once. It is immutable and may be used from any goroutine.
type Attributes struct {
	req *admissionv1.AdmissionRequest
	// resource is what the object is in; original is what the client asked for. They differ only when the API server
	// has converted the object for the entry that led here.
	resource, original schema.GroupVersionResource
	object, old        *object
	input              *conditionInput
}

// NewAttributes is req as matching sees it. It keeps req, which must not change afterwards.
func NewAttributes(req *admissionv1.AdmissionRequest) *Attributes {
	a := &Attributes{
		req:      req,
		resource: gvr(req.GetResource()),
		object:   newObject(req.GetObject()),
		old:      newObject(req.GetOldObject()),
		input:    &conditionInput{},
	}
	a.original = a.resource
	if r := req.GetRequestResource(); r != nil {
		a.original = gvr(r)
	}
	return a
}

// WithObject is the request with the object as mutated so far (SEMANTICS C3). It keeps raw, which must not change
// afterwards, and shares everything else with a.
func (a *Attributes) WithObject(raw []byte) *Attributes {
	next := *a
	next.object = newObject(&admissionv1.Object{ContentType: a.req.GetObject().GetContentType(), Raw: raw})
	next.input = &conditionInput{}
	return &next
}

// Exempt reports whether the request is never sent to hooks: configuration about admission itself, which could lock
// its own repair out, and reviews of identities and permissions, which hooks' own calls depend on (SEMANTICS C19).
func (a *Attributes) Exempt() bool {
	kind := a.req.GetRequestKind()
	if kind == nil {
		kind = a.req.GetKind()
	}
	return exemptKind(kind.GetGroup(), kind.GetKind()) || exemptResource(a.original.Group, a.original.Resource)
}

// exemptKind is IsExemptAdmissionConfigurationResource of k8s.io/apiserver. It goes by kind, not by resource.
func exemptKind(group, kind string) bool {
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

// exemptResource is the list in k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion.
func exemptResource(group, resource string) bool {
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

// operation is what is done to the object.
func (a *Attributes) operation() string { return a.req.GetOperation() }

// namespaced reports whether rules with scope Namespaced cover the request. A Namespace is not namespaced although
// requests about it carry its own name as their namespace (SEMANTICS C15).
func (a *Attributes) namespaced(r schema.GroupVersionResource) bool {
	return a.req.GetNamespace() != "" && r != schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func gvr(r *admissionv1.GroupVersionResource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource()}
}
