package oracle

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Attributes is req as an API server hands it to admission: built-in kinds as defaulted internal types, all others
// unstructured. The kind and resource are those that the client asked for, so that objects have to be in that version.
func (o *Oracle) Attributes(req *admissionv1.AdmissionRequest) (admission.Attributes, error) {
	object, err := o.decode(req.GetObject())
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	old, err := o.decode(req.GetOldObject())
	if err != nil {
		return nil, fmt.Errorf("old object: %w", err)
	}
	options, err := decodeOptions(req.GetOptions())
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return admission.NewAttributesRecord(object, old, gvkOf(req), req.GetNamespace(), req.GetName(), gvrOf(req),
		req.GetSubResource(), admission.Operation(req.GetOperation()), options, req.GetDryRun(), userOf(req)), nil
}

func gvkOf(req *admissionv1.AdmissionRequest) schema.GroupVersionKind {
	k := req.GetRequestKind()
	if k == nil {
		k = req.GetKind()
	}
	return schema.GroupVersionKind{Group: k.GetGroup(), Version: k.GetVersion(), Kind: k.GetKind()}
}

func gvrOf(req *admissionv1.AdmissionRequest) schema.GroupVersionResource {
	r := req.GetRequestResource()
	if r == nil {
		r = req.GetResource()
	}
	return schema.GroupVersionResource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource()}
}

func userOf(req *admissionv1.AdmissionRequest) user.Info {
	u := req.GetUserInfo()
	extra := map[string][]string{}
	for k, v := range u.GetExtra() {
		extra[k] = v.GetItems()
	}
	return &user.DefaultInfo{Name: u.GetUsername(), UID: u.GetUid(), Groups: u.GetGroups(), Extra: extra}
}

// decode decodes an object as an API server's handler does. An absent object is a nil interface.
func (o *Oracle) decode(raw *admissionv1.Object) (runtime.Object, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // absence is a value of a request
	}
	custom := &unstructured.Unstructured{}
	if err := custom.UnmarshalJSON(raw.GetRaw()); err != nil {
		return nil, err
	}
	if o.custom || !legacyscheme.Scheme.Recognizes(custom.GroupVersionKind()) {
		return custom, nil
	}
	return runtime.Decode(legacyscheme.Codecs.UniversalDecoder(internal(custom.GroupVersionKind())), raw.GetRaw())
}

// internal is the version in which kube-apiserver handles objects of a kind.
func internal(k schema.GroupVersionKind) schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: runtime.APIVersionInternal}
}

// decodeOptions decodes the options of an operation, which are of the same few types in every group.
func decodeOptions(raw *admissionv1.Object) (runtime.Object, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // absence is a value of a request
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(raw.GetRaw(), &kind); err != nil {
		return nil, err
	}
	known := map[string]runtime.Object{
		"CreateOptions": &metav1.CreateOptions{}, "UpdateOptions": &metav1.UpdateOptions{},
		"PatchOptions": &metav1.PatchOptions{}, "DeleteOptions": &metav1.DeleteOptions{},
	}
	options, ok := known[kind.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", kind.Kind)
	}
	return options, json.Unmarshal(raw.GetRaw(), options)
}
