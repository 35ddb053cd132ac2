package conversion

import (
	"strconv"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// contentTypeJSON is the meaning of an empty Object.content_type.
const contentTypeJSON = "application/json"

// SharedReview is an AdmissionReview that asks, written once for all webhooks that take its version: their requests differ in the uid alone.
// Immutable.
type SharedReview struct {
	head  []byte
	tail  [][]byte
	noUID bool
}

// Pieces is the review under a uid, which v1alpha1 has no place for: a head of its own, and a tail that all reviews share. The objects in the tail
// are not copied from the request. Callers must not change any piece.
func (s *SharedReview) Pieces(uid string) (head []byte, tail [][]byte) {
	if s.noUID {
		return s.head, s.tail
	}
	head = make([]byte, 0, len(s.head)+len(uid)+len(`""`))
	return appendString(append(head, s.head...), uid), s.tail
}

// EncodeSharedReview writes req as an AdmissionReview in req.api_version; empty means v1. An API server would send the same, and DecodeReview reads
// it back. It lacks the fields of the mesh (the cluster, the revision of the object); v1alpha1 also lacks the uid, options, dryRun and the requested
// kind and resource. Objects are written as they are, unchecked. req must not change as long as the review is in use. The error is an *Error: there
// is no request, api_version is none that DecodeReview reads, or an object is not JSON.
func EncodeSharedReview(req *admissionv1.ReviewRequest) (*SharedReview, error) {
	apiVersion, err := encodable(req)
	if err != nil {
		return nil, err
	}
	r := req.GetRequest()
	if apiVersion == versionV1alpha1 {
		return sharedV1alpha1(r), nil
	}
	w := make(jsonWriter, 0, 128)
	w.openReview(apiVersion)
	w.name("request")
	w.open('{')
	w.name("uid")
	s := &SharedReview{head: w, tail: make([][]byte, 0, 7)}

	w = make(jsonWriter, 0, 1024)
	w.raw('"') // The end of the uid, so that a comma follows. It belongs to the uid.
	w.attributes(r)
	w = s.object(w[1:], `,"object":`, r.GetObject())
	w = s.object(w, `,"oldObject":`, r.GetOldObject())
	if r.DryRun != nil {
		w = append(w, `,"dryRun":`...)
		w = strconv.AppendBool(w, r.GetDryRun())
	}
	w = s.object(w, `,"options":`, r.GetOptions())
	s.piece(append(w, `}}`...))
	return s, nil
}

func encodable(req *admissionv1.ReviewRequest) (apiVersion string, err error) {
	apiVersion = req.GetApiVersion()
	if apiVersion == "" {
		apiVersion = versionV1
	}
	if !supported(apiVersion) {
		return "", unencodable("cannot write an AdmissionReview in apiVersion %q: want %s, %s or %s", apiVersion, versionV1, versionV1beta1, versionV1alpha1)
	}
	r := req.GetRequest()
	if r == nil {
		return "", unencodable("cannot write an AdmissionReview without a request")
	}
	for _, o := range []*admissionv1.Object{r.GetObject(), r.GetOldObject(), r.GetOptions()} {
		if o != nil && (len(o.GetRaw()) == 0 || o.GetContentType() != "" && o.GetContentType() != contentTypeJSON) {
			return "", unencodable("cannot write an object of type %q and %d bytes into JSON", o.GetContentType(), len(o.GetRaw()))
		}
	}
	return apiVersion, nil
}

// object writes a member whose value is an object of the request. The text in w and the object become a piece each. The caller goes on with the
// returned writer.
func (s *SharedReview) object(w jsonWriter, name string, o *admissionv1.Object) jsonWriter {
	w = append(w, name...)
	if o == nil {
		return append(w, "null"...)
	}
	s.piece(w)
	s.piece(o.GetRaw())
	return w[len(w):]
}

func (s *SharedReview) piece(piece []byte) {
	s.tail = append(s.tail, piece[:len(piece):len(piece)])
}

// attributes writes the members of AdmissionRequest of k8s.io/api/admission/v1 between the uid and the objects.
func (w *jsonWriter) attributes(r *admissionv1.AdmissionRequest) {
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
}

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
	writeMap(w, "extra", u.GetExtra(), func(v *admissionv1.ExtraValue) { w.texts(v.GetItems()) })
	w.close('}')
}
