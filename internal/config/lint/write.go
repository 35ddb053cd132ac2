package lint

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// write is one request that hooks are matched with.
type write struct {
	operation, group, version, kind string
	resource                        string // with its subresource
	namespace, name, user           string
	objectLabels                    string // as JSON; empty for none
}

// attributes are the write as hooks are matched with it, in a namespace with these labels.
func (w *write) attributes(namespaceLabels labels.Set) *match.Attributes {
	plural, subresource, _ := strings.Cut(w.resource, "/")
	kind := &admissionv1.GroupVersionKind{Group: w.group, Version: w.version, Kind: w.kind}
	resource := &admissionv1.GroupVersionResource{Group: w.group, Version: w.version, Resource: plural}
	r := &admissionv1.AdmissionRequest{
		Uid: "sample", Operation: w.operation, Kind: kind, RequestKind: kind, Resource: resource, RequestResource: resource,
		SubResource: subresource, RequestSubResource: subresource, Namespace: w.namespace, Name: w.name, UserInfo: &admissionv1.UserInfo{Username: w.user},
	}
	if w.operation != "DELETE" {
		r.Object = w.object()
	}
	if w.operation == "UPDATE" || w.operation == "DELETE" {
		r.OldObject = w.object()
	}
	return match.NewAttributes(r, labelledCluster{labels: namespaceLabels})
}

func (w *write) object() *admissionv1.Object {
	version, objectLabels := strings.TrimPrefix(w.group+"/"+w.version, "/"), cmp.Or(w.objectLabels, "{}")
	return &admissionv1.Object{Raw: fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"labels":%s}}`,
		version, w.kind, w.name, w.namespace, objectLabels)}
}

// labelledCluster is a cluster of which only the labels of one namespace are known.
type labelledCluster struct {
	match.Unknown

	labels labels.Set
}

// NamespaceLabels implements match.Cluster.
func (c labelledCluster) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return c.labels, nil
}
