package bridge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// enforceSpec is the request in the proposal's form. The proposal shows resource, subresource, operation, object, oldObject and
// userInfo, and models the schema after SubjectAccessReview and admission.Interface; the other fields are those that both have.
// Missing ones are taken from the object. It is read strictly: a hook may match the field that was misspelt.
type enforceSpec struct {
	// Group and Version of the resource. Without Version both come from the object; a subresource, whose object may be of another group
	// (a Scale, an Eviction), needs Version.
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	// Operation in any case: the proposal has Create where Kubernetes has CREATE.
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
	DryRun    *bool           `json:"dryRun"`
	UserInfo  struct {
		Name     string              `json:"name"`
		Username string              `json:"username"` // the same, as everywhere else in Kubernetes
		UID      string              `json:"uid"`
		Groups   []string            `json:"groups"`
		Extra    map[string][]string `json:"extra"`
	} `json:"userInfo"`
}

// enforceHead identifies an object.
type enforceHead struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// decodeEnforce reads a document in the proposal's form. It has no uid and is given one.
func decodeEnforce(body []byte) (*admissionv1.ReviewRequest, *refusal) {
	var document struct {
		APIVersion string          `json:"apiVersion"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &document); err != nil {
		return nil, badRequest("the body is no AdmissionReview that can be read: %v", err)
	}
	if present(document.Spec) == nil {
		return nil, badRequest("the AdmissionReview has neither spec nor request: there is nothing to judge")
	}
	var spec enforceSpec
	strict, err := kjson.UnmarshalStrict(document.Spec, &spec)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, badRequest("the spec of the AdmissionReview cannot be read: %v", err)
	}
	request, refused := spec.request()
	if refused != nil {
		return nil, refused
	}
	return &admissionv1.ReviewRequest{Request: request, ApiVersion: document.APIVersion}, nil
}

// request is the spec as a request for hooks.
func (s *enforceSpec) request() (*admissionv1.AdmissionRequest, *refusal) {
	if refused := s.check(); refused != nil {
		return nil, refused
	}
	object, old := present(s.Object), present(s.OldObject)
	head, refused := headOf(object)
	oldHead, oldRefused := headOf(old)
	if refused = cmp.Or(refused, oldRefused); refused != nil {
		return nil, refused
	}
	if object == nil {
		head = oldHead
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	group, version := s.Group, s.Version
	if version == "" {
		group, version = kind.Group, kind.Version
	}
	if version == "" || (s.Subresource != "" && s.Version == "") {
		return nil, badRequest("spec.version is missing: say group and version of %s/%s, which the object does not tell", s.Resource, s.Subresource)
	}
	request := &admissionv1.AdmissionRequest{
		Uid:         uuid.NewString(),
		Resource:    &admissionv1.GroupVersionResource{Group: group, Version: version, Resource: s.Resource},
		SubResource: s.Subresource,
		Name:        cmp.Or(s.Name, head.Metadata.Name),
		Namespace:   cmp.Or(s.Namespace, head.Metadata.Namespace),
		Operation:   strings.ToUpper(s.Operation),
		UserInfo:    s.user(),
		Object:      object,
		OldObject:   old,
		DryRun:      s.DryRun,
	}
	if kind.Kind != "" {
		request.Kind = &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
	}
	if group == "" && s.Resource == "namespaces" { // which are in themselves
		request.Namespace = request.GetName()
	}
	return request, nil
}

// check refuses names that no rule of a hook could have, so that a slip is not an allow.
func (s *enforceSpec) check() *refusal {
	operations := []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
	switch {
	case len(validation.IsDNS1035Label(s.Resource)) > 0:
		return badRequest("spec.resource is %.100q: name a resource as rules do, in plural and without its group, for example pods", s.Resource)
	case s.Subresource != "" && len(validation.IsDNS1035Label(s.Subresource)) > 0:
		return badRequest("spec.subresource is %.100q: name a subresource as rules do, for example status", s.Subresource)
	case !slices.Contains(operations, strings.ToUpper(s.Operation)):
		return badRequest("spec.operation is %.100q: use Create, Update, Delete or Connect", s.Operation)
	}
	return nil
}

func (s *enforceSpec) user() *admissionv1.UserInfo {
	user := &admissionv1.UserInfo{Username: cmp.Or(s.UserInfo.Name, s.UserInfo.Username), Uid: s.UserInfo.UID, Groups: s.UserInfo.Groups}
	if len(s.UserInfo.Extra) > 0 {
		user.Extra = make(map[string]*admissionv1.ExtraValue, len(s.UserInfo.Extra))
	}
	for key, items := range s.UserInfo.Extra {
		user.Extra[key] = &admissionv1.ExtraValue{Items: items}
	}
	return user
}

// present returns an object, or nil if it is absent or null.
func present(raw json.RawMessage) *admissionv1.Object {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return &admissionv1.Object{Raw: raw}
}

// headOf is empty without an object.
func headOf(o *admissionv1.Object) (enforceHead, *refusal) {
	var head enforceHead
	if o == nil {
		return head, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.GetRaw(), &head); err != nil {
		return head, badRequest("the object of the spec cannot be read: %v", err)
	}
	if _, err := schema.ParseGroupVersion(head.APIVersion); err != nil || head.APIVersion == "" || head.Kind == "" {
		return head, badRequest("the object of the spec has apiVersion %.100q and kind %.100q: write both", head.APIVersion, head.Kind)
	}
	return head, nil
}
