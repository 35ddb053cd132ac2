// Package builtin changes, compares and converts objects of the kinds that kube-apiserver has built in, as it does itself: with its own Go types,
// defaults and conversions, from k8s.io/kubernetes v1.36.3 and k8s.io/apiextensions-apiserver v0.36.3.
//
// Not all that these modules hold is still served by that version of Kubernetes; objects of all of it can be read and converted:
//
//   - admissionregistration.k8s.io v1, v1beta1, v1alpha1 (policies only)
//   - apiextensions.k8s.io v1, v1beta1
//   - apps v1, v1beta2, v1beta1 and extensions v1beta1 (Deployment, DaemonSet, ReplicaSet, Scale, Ingress, NetworkPolicy)
//   - authentication.k8s.io v1, v1beta1, v1alpha1 and authorization.k8s.io v1, v1beta1
//   - autoscaling v2, v1
//   - batch v1, v1beta1
//   - certificates.k8s.io v1, v1beta1, v1alpha1
//   - coordination.k8s.io v1, v1beta1, v1alpha2 (LeaseCandidate)
//   - core v1 and events.k8s.io v1, v1beta1
//   - discovery.k8s.io v1, v1beta1
//   - flowcontrol.apiserver.k8s.io v1, v1beta3, v1beta2, v1beta1
//   - internal.apiserver.k8s.io v1alpha1
//   - networking.k8s.io v1, v1beta1
//   - node.k8s.io v1, v1beta1, v1alpha1
//   - policy v1, v1beta1
//   - rbac.authorization.k8s.io v1, v1beta1, v1alpha1
//   - resource.k8s.io v1, v1beta2, v1beta1, v1alpha3
//   - scheduling.k8s.io v1, v1beta1 (PriorityClass), v1alpha2
//   - storage.k8s.io v1, v1beta1, v1alpha1
//   - storagemigration.k8s.io v1beta1
//
// A cluster newer than that may send fields which the types do not know. They are no reason to treat an object otherwise: they are kept aside while
// it is decoded, and put back where they were when it is encoded. Objects that are nothing but JSON to us would be worse than incomplete ones, for
// hooks rely on defaults that the hooks before them made necessary.
//
// Older clusters may still serve versions that these modules have dropped: autoscaling v2beta1 and v2beta2, PodSecurityPolicy, the batch v2alpha1
// CronJob, and most v1alpha1 versions. Such objects, and custom resources, are changed as JSON, and are not converted. An APIService is changed as
// JSON too.
//
// Defaults depend on feature gates here and there; an API server without flags has the same gates.
//
// Everything in the package is pure and may be used concurrently. Its import fills the global scheme of k8s.io/kubernetes, which is why it is linked
// where the program is wired and nowhere else.
package builtin
