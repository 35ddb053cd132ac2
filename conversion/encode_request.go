package conversion

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// contentTypeJSON is what an empty Object.content_type means.
const contentTypeJSON = "application/json"

// EncodeReviewRequest appends to dst the AdmissionReview that asks what req asks, in req.api_version; empty means v1. It is
// what an API server would send, and DecodeReview reads it back. What only the mesh knows (the cluster, the revision of the
// object) has no place in it. Objects are written as they are, unchecked. The error is an *Error: there is no request,
// api_version is neither v1 nor v1beta1, or an object is not JSON.
func EncodeReviewRequest(dst []byte, req *admissionv1.ReviewRequest) ([]byte, error) {
	apiVersion := req.GetApiVersion()
	if apiVersion == "" {
		apiVersion = versionV1
	}
	if !supported(apiVersion) {
		return dst, unencodable("cannot write an AdmissionReview in apiVersion %q: want %s or %s", apiVersion, versionV1, versionV1beta1)
	}
	r := req.GetRequest()
	if r == nil {
		return dst, unencodable("cannot write an AdmissionReview without a request")
	}
	for _, o := range []*admissionv1.Object{r.GetObject(), r.GetOldObject(), r.GetOptions()} {
		if o != nil && (len(o.GetRaw()) == 0 || o.GetContentType() != "" && o.GetContentType() != contentTypeJSON) {
			return dst, unencodable("cannot write an object of type %q and %d bytes into JSON", o.GetContentType(), len(o.GetRaw()))
		}
	}
	w := jsonWriter(dst)
	w.openReview(apiVersion)
	w.request(r)
	w.raw('}')
	return w, nil
}

// request writes AdmissionRequest of k8s.io/api/admission/v1.
func (w *jsonWriter) request(r *admissionv1.AdmissionRequest) {
	w.name("request")
	w.open('{')
	w.text("uid", r.GetUid())
	w.names("kind", "kind", r.GetKind().GetGroup(), r.GetKind().GetVersion(), r.GetKind().GetKind())
	w.names("resource", "resource", r.GetResource().GetGroup(), r.GetResource().GetVersion(), r.GetResource().GetResource())
	w.optional("subResource", r.GetSubResource())
	if k := r.GetRequestKind(); k != nil {
		w.names("requestKind", "kind", k.GetGroup(), k.GetVersion(), k.GetKind())
	}
	if rr := r.GetRequestResource(); rr != nil {
		w.names("requestResource", "resource", rr.GetGroup(), rr.GetVersion(), rr.GetResource())
	}
	w.optional("requestSubResource", r.GetRequestSubResource())
	w.optional("name", r.GetName())
	w.optional("namespace", r.GetNamespace())
	w.text("operation", r.GetOperation())
	w.user(r.GetUserInfo())
	w.object("object", r.GetObject())
	w.object("oldObject", r.GetOldObject())
	if r.DryRun != nil {
		w.boolean("dryRun", r.GetDryRun())
	}
	w.object("options", r.GetOptions())
	w.close('}')
}

// names writes a GroupVersionKind or a GroupVersionResource.
func (w *jsonWriter) names(field, third, group, version, name string) {
	w.name(field)
	w.open('{')
	w.text("group", group)
	w.text("version", version)
	w.text(third, name)
	w.close('}')
}

// user writes UserInfo of k8s.io/api/authentication/v1.
func (w *jsonWriter) user(u *admissionv1.UserInfo) {
	w.name("userInfo")
	w.open('{')
	w.optional("username", u.GetUsername())
	w.optional("uid", u.GetUid())
	if len(u.GetGroups()) > 0 {
		w.name("groups")
		w.texts(u.GetGroups())
	}
	if len(u.GetExtra()) > 0 {
		w.name("extra")
		w.open('{')
		for _, key := range sortedKeys(u.GetExtra()) {
			w.key(key)
			w.texts(u.GetExtra()[key].GetItems())
		}
		w.close('}')
	}
	w.close('}')
}

func (w *jsonWriter) object(name string, o *admissionv1.Object) {
	w.name(name)
	if o == nil {
		*w = append(*w, "null"...)
		return
	}
	*w = append(*w, o.GetRaw()...)
}
