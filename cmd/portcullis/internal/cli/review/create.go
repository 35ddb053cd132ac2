package review

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// creator creates objects as a user does with kubectl.
type creator struct {
	user      string
	groups    []string
	namespace string // of objects that name none
}

// create is the request of the creation of an object, as an API server makes it. The resource is guessed from the kind, as kubectl does without
// discovery. An object that names no namespace gets the namespace of c, unless its resource is built in and in no namespace.
func (c creator) create(object []byte) (*admissionv1.AdmissionRequest, error) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(object); err != nil {
		return nil, fmt.Errorf("the object cannot be read: %w", err)
	}
	kind := o.GroupVersionKind()
	if kind.Version == "" {
		return nil, errors.New("the object has no apiVersion")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	switch {
	case lint.IsClusterScoped(resource.Group, resource.Resource):
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(c.namespace)
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	request := &admissionv1.AdmissionRequest{
		Uid: uuid.NewString(), Operation: "CREATE", Name: o.GetName(), Namespace: o.GetNamespace(),
		Kind:            &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Resource:        &admissionv1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
		UserInfo:        &admissionv1.UserInfo{Username: c.user, Groups: append([]string{}, c.groups...)},
		Object:          &admissionv1.Object{ContentType: "application/json", Raw: raw},
		Options:         &admissionv1.Object{ContentType: "application/json", Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
		RequestKind:     &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		RequestResource: &admissionv1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
	}
	if kind.Kind == "Namespace" && kind.Group == "" {
		request.Namespace = o.GetName() // as an API server has it
	}
	return request, nil
}
