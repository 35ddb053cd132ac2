package lint

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// danger is a group of writes that a cluster cannot do without.
type danger struct {
	code, what, why string

	writes     []write
	attributes []*match.Attributes // of each write, the same for every hook
}

// dangersOf returns the dangers in the order in which they are reported.
func dangersOf(ownNamespace string) []danger {
	all := []danger{
		{code: CodeLeases, what: "leases", why: "Without it controllers lose their leadership and nodes are taken for dead.", writes: []write{
			lease("UPDATE", "kube-system", "kube-controller-manager", "system:kube-controller-manager"),
			lease("CREATE", "kube-system", "kube-scheduler", "system:kube-scheduler"),
			lease("UPDATE", "kube-node-lease", "node-1", nodeUser),
		}},
		{code: CodeNodes, what: "nodes", why: "Without it nodes cannot join, nor say how they are.", writes: []write{
			node("CREATE", "nodes"), node("UPDATE", "nodes/status"), node("UPDATE", "nodes"),
		}},
		{code: CodeCertificates, what: "certificate signing requests", why: "Without it nodes get no certificates.", writes: []write{
			certificate("CREATE", ""), certificate("UPDATE", "/approval"), certificate("UPDATE", "/status"),
		}},
		{code: CodeEvents, what: "events", why: "Each is written beside another action, which does not wait for it.", writes: []write{
			event(""), event("events.k8s.io"),
		}},
		{code: CodeSystem, what: "kube-system", why: "Without it the cluster cannot mend itself.", writes: workloads("kube-system")},
	}
	if ownNamespace != "" {
		all = append(all, danger{
			code: CodeOwnNamespace, what: "the namespace of the mesh itself",
			why: "While the hook does not answer, the mesh cannot be repaired either.", writes: workloads(ownNamespace),
		})
	}
	for i := range all {
		d := &all[i]
		d.why += " Leave them out by a rule or a namespaceSelector, let the hook fail open, or let the resource (spec.bypass.failOpen of each Cluster); " +
			"a matchCondition leaves them out, while the mesh is down, only if all hooks of the entry have it."
		for j := range d.writes {
			w := &d.writes[j]
			d.attributes = append(d.attributes, w.attributes(labels.Set{corev1.LabelMetadataName: w.namespace}))
		}
	}
	return all
}

const nodeUser = "system:node:node-1"

func lease(operation, namespace, name, user string) write {
	return write{
		operation: operation, group: "coordination.k8s.io", version: "v1", kind: "Lease", resource: "leases",
		namespace: namespace, name: name, user: user,
	}
}

func node(operation, resource string) write {
	return write{operation: operation, version: "v1", kind: "Node", resource: resource, name: "node-1", user: nodeUser}
}

func certificate(operation, subresource string) write {
	return write{
		operation: operation, group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest",
		resource: "certificatesigningrequests" + subresource, name: "csr-1", user: nodeUser,
	}
}

func event(group string) write {
	return write{operation: "CREATE", group: group, version: "v1", kind: "Event", resource: "events", namespace: "default", name: "a.1", user: nodeUser}
}

// workloads are the writes that repair the workloads of a namespace.
func workloads(namespace string) []write {
	const controller, admin = "system:serviceaccount:kube-system:replicaset-controller", "admin"
	all := []write{
		{operation: "CREATE", kind: "Pod", resource: "pods", name: "a-1", user: controller},
		{operation: "CREATE", kind: "Pod", resource: "pods/binding", name: "a-1", user: "system:kube-scheduler"},
		{operation: "DELETE", kind: "Pod", resource: "pods", name: "a-1", user: controller},
		{operation: "UPDATE", kind: "Pod", resource: "pods/status", name: "a-1", user: nodeUser},
		{operation: "UPDATE", group: "apps", kind: "Deployment", resource: "deployments", name: "a", user: admin},
		{operation: "UPDATE", group: "apps", kind: "DaemonSet", resource: "daemonsets", name: "a", user: admin},
		{operation: "UPDATE", kind: "ConfigMap", resource: "configmaps", name: "a", user: admin},
		{operation: "UPDATE", kind: "Secret", resource: "secrets", name: "a", user: admin},
		{operation: "UPDATE", kind: "Endpoints", resource: "endpoints", name: "a", user: controller},
		{operation: "CREATE", group: "discovery.k8s.io", kind: "EndpointSlice", resource: "endpointslices", name: "a", user: controller},
	}
	for i := range all {
		all[i].version, all[i].namespace = "v1", namespace
	}
	return all
}
