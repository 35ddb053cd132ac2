package conversion_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	k8sv1 "k8s.io/api/admission/v1"
	k8sv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// oracle is Kubernetes' own decoder, as webhook servers use it.
type oracle struct{ decoder runtime.Decoder }

func newOracle(t testing.TB) oracle {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{k8sv1.AddToScheme, k8sv1beta1.AddToScheme, addV1alpha1} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return oracle{serializer.NewCodecFactory(scheme).UniversalDeserializer()}
}

// review decodes a body with Kubernetes' decoder. It adds exactly the errors that the package comment lists: formats other than JSON, other kinds, no
// request, no uid, objects that are no text.
func (o oracle) review(body []byte) (*k8sv1.AdmissionReview, error) {
	if !yaml.IsJSONBuffer(body) {
		return nil, fmt.Errorf("not JSON")
	}
	object, gvk, err := o.decoder.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	var review *k8sv1.AdmissionReview
	switch r := object.(type) {
	case *k8sv1.AdmissionReview:
		review = r
	case *k8sv1beta1.AdmissionReview:
		review = fromV1beta1(r)
	case *alphaReview:
		review = fromV1alpha1(r)
	default:
		return nil, fmt.Errorf("a %T", object)
	}
	review.APIVersion, review.Kind = gvk.ToAPIVersionAndKind()
	if review.Request == nil || review.Request.UID == "" && gvk.Version != "v1alpha1" {
		return nil, fmt.Errorf("no request or no uid")
	}
	for _, raw := range [][]byte{review.Request.Object.Raw, review.Request.OldObject.Raw, review.Request.Options.Raw} {
		if err := conversion.CheckText(raw); err != nil {
			return nil, err
		}
	}
	return review, nil
}

func fromV1beta1(r *k8sv1beta1.AdmissionReview) *k8sv1.AdmissionReview {
	out := &k8sv1.AdmissionReview{}
	if q := r.Request; q != nil {
		out.Request = &k8sv1.AdmissionRequest{
			UID: q.UID, Kind: q.Kind, Resource: q.Resource, SubResource: q.SubResource,
			RequestKind: q.RequestKind, RequestResource: q.RequestResource, RequestSubResource: q.RequestSubResource,
			Name: q.Name, Namespace: q.Namespace, Operation: k8sv1.Operation(q.Operation), UserInfo: q.UserInfo,
			Object: q.Object, OldObject: q.OldObject, DryRun: q.DryRun, Options: q.Options,
		}
	}
	if p := r.Response; p != nil {
		out.Response = &k8sv1.AdmissionResponse{
			UID: p.UID, Allowed: p.Allowed, Result: p.Result, Patch: p.Patch, PatchType: (*k8sv1.PatchType)(p.PatchType),
			AuditAnnotations: p.AuditAnnotations, Warnings: p.Warnings,
		}
	}
	return out
}

// toKubernetes is the request in Kubernetes' type, the only one in which absent and empty are the same where they are the
// same to Kubernetes.
func toKubernetes(r *admissionv1.AdmissionRequest) *k8sv1.AdmissionRequest {
	out := &k8sv1.AdmissionRequest{
		UID:                types.UID(r.GetUid()),
		Kind:               metav1.GroupVersionKind{Group: r.GetKind().GetGroup(), Version: r.GetKind().GetVersion(), Kind: r.GetKind().GetKind()},
		Resource:           resource(r.GetResource()),
		SubResource:        r.GetSubResource(),
		RequestSubResource: r.GetRequestSubResource(),
		Name:               r.GetName(),
		Namespace:          r.GetNamespace(),
		Operation:          k8sv1.Operation(r.GetOperation()),
		UserInfo: authenticationv1.UserInfo{
			Username: r.GetUserInfo().GetUsername(), UID: r.GetUserInfo().GetUid(), Groups: r.GetUserInfo().GetGroups(),
		},
		Object:    runtime.RawExtension{Raw: r.GetObject().GetRaw()},
		OldObject: runtime.RawExtension{Raw: r.GetOldObject().GetRaw()},
		DryRun:    r.DryRun,
		Options:   runtime.RawExtension{Raw: r.GetOptions().GetRaw()},
	}
	for key, value := range r.GetUserInfo().GetExtra() {
		if out.UserInfo.Extra == nil {
			out.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.UserInfo.Extra[key] = value.GetItems()
	}
	if k := r.GetRequestKind(); k != nil {
		out.RequestKind = &metav1.GroupVersionKind{Group: k.GetGroup(), Version: k.GetVersion(), Kind: k.GetKind()}
	}
	if k := r.GetRequestResource(); k != nil {
		rr := resource(k)
		out.RequestResource = &rr
	}
	return out
}

func resource(r *admissionv1.GroupVersionResource) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource()}
}

// corpus returns the paths of the files of a directory of the shared corpus.
func corpus(t testing.TB, directory string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "shared", "corpus", directory, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("../shared/corpus is not here")
	}
	return files
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func asV1beta1(t testing.TB, object runtime.Object) *k8sv1beta1.AdmissionReview {
	t.Helper()
	review, ok := object.(*k8sv1beta1.AdmissionReview)
	if !ok {
		t.Fatalf("Kubernetes reads a %T", object)
	}
	return review
}
