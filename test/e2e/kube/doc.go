// Package kube runs a real Kubernetes control plane for tests: one etcd and
// one kube-apiserver, both built from their Go modules (package build), both
// on 127.0.0.1 with free ports, both gone when the test binary is.
//
// etcd is a process of its own and not embedded in the test binary: it costs
// a third of a second more, and in return its memory, its logs and its gRPC
// settings stay out of the code under test, and a test may kill it.
//
// Nothing else runs. Without the controllers of kube-controller-manager:
//
//   - a Pod is admitted and stored and never scheduled;
//   - a deleted Namespace stays Terminating, so namespaces are made per test
//     and left behind;
//   - nobody creates service accounts. The ServiceAccount admission plugin
//     stays on, since Pods in real clusters go through it, so
//     [Cluster.Namespace] creates the account "default" itself.
//
// kube-apiserver authenticates by client certificate, authorizes by RBAC and
// runs the admission plugins of its default configuration. To webhooks it
// presents a client certificate of [WebhookClientName], whichever their
// address, so that a mesh can recognise the cluster that calls it.
package kube
