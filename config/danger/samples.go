package danger

import (
	"context"
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// sample is one write that a cluster lives on.
type sample struct {
	code, what, why                          string
	operation, group, version, kind, plural  string
	subresource, namespace, name, user, more string // more is what the object has besides its metadata

	attributes *match.Attributes // the same for every hook
}

// samplesOf are the writes that must not stop, in the order in which they are told.
func samplesOf(o Options) []sample {
	all := make([]sample, 0, 32)
	add := func(code, what, why string, samples ...sample) {
		for _, s := range samples {
			s.code, s.what, s.why = code, what, why
			s.attributes = match.NewAttributes(s.request(), somewhere{})
			all = append(all, s)
		}
	}
	const narrow = "Leave them out by a rule or a namespaceSelector, or let the hook fail open; a matchCondition leaves them out only while the mesh runs."
	add(CodeLeases, "leases", "Without it controllers lose what they lead and nodes are taken for dead. "+narrow,
		lease("UPDATE", "kube-system", "kube-controller-manager", "system:kube-controller-manager"),
		lease("CREATE", "kube-system", "kube-scheduler", "system:kube-scheduler"),
		lease("UPDATE", "kube-node-lease", "node-1", "system:node:node-1"),
	)
	add(CodeNodes, "nodes", "Without it nodes cannot join, nor say how they are. "+narrow,
		node("CREATE", ""), node("UPDATE", "status"), node("UPDATE", ""))
	add(CodeCertificates, "certificate signing requests", "Without it nodes get no certificates. "+narrow,
		certificate("CREATE", ""), certificate("UPDATE", "approval"), certificate("UPDATE", "status"))
	add(CodeEvents, "events", "Each is written while something else happens, and nobody waits for it. "+narrow,
		event(""), event("events.k8s.io"))
	add(CodeSystem, "kube-system", "Without it the cluster cannot mend itself. "+narrow, workloads("kube-system")...)
	if o.OwnNamespace != "" {
		add(CodeOwnNamespace, "the namespace of the mesh itself",
			"While nobody answers for the hook the mesh cannot be mended either. "+narrow, workloads(o.OwnNamespace)...)
	}
	return all
}

func lease(operation, namespace, name, user string) sample {
	return sample{
		operation: operation, group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases",
		namespace: namespace, name: name, user: user, more: `,"spec":{"holderIdentity":"a"}`,
	}
}

func node(operation, subresource string) sample {
	return sample{
		operation: operation, version: "v1", kind: "Node", plural: "nodes", subresource: subresource, name: "node-1", user: "system:node:node-1",
	}
}

func certificate(operation, subresource string) sample {
	return sample{
		operation: operation, group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest",
		plural: "certificatesigningrequests", subresource: subresource, name: "csr-1", user: "system:node:node-1",
	}
}

func event(group string) sample {
	return sample{
		operation: "CREATE", group: group, version: "v1", kind: "Event", plural: "events", namespace: "default", name: "a.1",
		user: "system:node:node-1",
	}
}

// workloads are what has to be written in a namespace so that what runs there can be mended.
func workloads(namespace string) []sample {
	const user = "system:serviceaccount:kube-system:replicaset-controller"
	return []sample{
		{operation: "CREATE", version: "v1", kind: "Pod", plural: "pods", namespace: namespace, name: "a-1", user: user},
		{operation: "CREATE", version: "v1", kind: "Pod", plural: "pods", subresource: "binding", namespace: namespace, name: "a-1", user: "system:kube-scheduler"},
		{operation: "DELETE", version: "v1", kind: "Pod", plural: "pods", namespace: namespace, name: "a-1", user: user},
		{operation: "UPDATE", version: "v1", kind: "Pod", plural: "pods", subresource: "status", namespace: namespace, name: "a-1", user: "system:node:node-1"},
		{operation: "UPDATE", group: "apps", version: "v1", kind: "Deployment", plural: "deployments", namespace: namespace, name: "a", user: "admin"},
		{operation: "UPDATE", group: "apps", version: "v1", kind: "DaemonSet", plural: "daemonsets", namespace: namespace, name: "a", user: "admin"},
		{operation: "UPDATE", version: "v1", kind: "ConfigMap", plural: "configmaps", namespace: namespace, name: "a", user: "admin"},
		{operation: "UPDATE", version: "v1", kind: "Secret", plural: "secrets", namespace: namespace, name: "a", user: "admin"},
		{operation: "UPDATE", version: "v1", kind: "Endpoints", plural: "endpoints", namespace: namespace, name: "a", user: user},
		{operation: "CREATE", group: "discovery.k8s.io", version: "v1", kind: "EndpointSlice", plural: "endpointslices", namespace: namespace, name: "a", user: user},
	}
}

// meets reports whether the hook would be asked about the sample, or refuse it unasked. What cannot be told, even for a
// panic, is dangerous.
func (s *sample) meets(ctx context.Context, h *match.Hook) (meets bool) {
	defer func() {
		if recover() != nil {
			meets = true
		}
	}()
	d := h.Selects(ctx, s.attributes)
	return d.Match || d.Err != nil
}

// request is the sample as an API server sends it.
func (s *sample) request() *admissionv1.AdmissionRequest {
	kind := &admissionv1.GroupVersionKind{Group: s.group, Version: s.version, Kind: s.kind}
	resource := &admissionv1.GroupVersionResource{Group: s.group, Version: s.version, Resource: s.plural}
	r := &admissionv1.AdmissionRequest{
		Uid: "sample", Operation: s.operation, Kind: kind, RequestKind: kind, Resource: resource, RequestResource: resource,
		SubResource: s.subresource, RequestSubResource: s.subresource, Namespace: s.namespace, Name: s.name,
		UserInfo: &admissionv1.UserInfo{Username: s.user},
	}
	if s.operation != "DELETE" {
		r.Object = s.object()
	}
	if s.operation != "CREATE" {
		r.OldObject = s.object()
	}
	return r
}

// object is the object of the sample.
func (s *sample) object() *admissionv1.Object {
	version := s.version
	if s.group != "" {
		version = s.group + "/" + s.version
	}
	namespace := ""
	if s.namespace != "" {
		namespace = fmt.Sprintf(`,"namespace":%q`, s.namespace)
	}
	return &admissionv1.Object{Raw: fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q%s}%s}`, version, s.kind, s.name, namespace, s.more)}
}

// example is the sample for people.
func (s *sample) example() string {
	resource := s.plural
	if s.subresource != "" {
		resource += "/" + s.subresource
	}
	where := s.name
	if s.namespace != "" {
		where = s.namespace + "/" + s.name
	}
	return fmt.Sprintf("%s %s %s by %s", s.operation, resource, where, s.user)
}

// somewhere is a cluster of which is known what all have in common.
type somewhere struct{ match.Unknown }

// NamespaceLabels implements match.Cluster: every namespace has its name as a label.
func (somewhere) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	return map[string]string{"kubernetes.io/metadata.name": name}, nil
}
