package hosttest

import (
	"encoding/json"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Create is a request that creates an object, given in JSON. Kind, name and namespace are the object's; the resource is
// the usual plural of its kind. Change other fields that the hook reads.
func Create(object string) *admissionv1.AdmissionRequest {
	r := about(object)
	r.Operation, r.Object = "CREATE", raw(object)
	return r
}

// Update is a request that changes an object, see [Create].
func Update(old, object string) *admissionv1.AdmissionRequest {
	r := about(object)
	r.Operation, r.Object, r.OldObject = "UPDATE", raw(object), raw(old)
	return r
}

// Delete is a request that deletes an object, see [Create].
func Delete(old string) *admissionv1.AdmissionRequest {
	r := about(old)
	r.Operation, r.OldObject = "DELETE", raw(old)
	return r
}

func raw(object string) *admissionv1.Object { return &admissionv1.Object{Raw: []byte(object)} }

// about reads an object's head. An unreadable object has none: hosts must bear it as well.
func about(object string) *admissionv1.AdmissionRequest {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal([]byte(object), &head)
	group, version, grouped := strings.Cut(head.APIVersion, "/")
	if !grouped {
		group, version = "", head.APIVersion
	}
	return &admissionv1.AdmissionRequest{
		Uid:       "705ab4f5-6393-11e8-b7cc-42010a800002",
		Cluster:   "hosttest",
		Kind:      &admissionv1.GroupVersionKind{Group: group, Version: version, Kind: head.Kind},
		Resource:  &admissionv1.GroupVersionResource{Group: group, Version: version, Resource: plural(head.Kind)},
		Name:      head.Metadata.Name,
		Namespace: head.Metadata.Namespace,
		UserInfo:  &admissionv1.UserInfo{Username: "hosttest", Groups: []string{"system:authenticated"}},
	}
}

// plural is how resources are named after kinds, irregular ones aside.
func plural(kind string) string {
	k := strings.ToLower(kind)
	switch {
	case k == "":
		return ""
	case strings.HasSuffix(k, "s"):
		return k + "es"
	case strings.HasSuffix(k, "y"):
		return strings.TrimSuffix(k, "y") + "ies"
	default:
		return k + "s"
	}
}
