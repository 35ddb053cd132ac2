// Package kube gives handlers Kubernetes types: an object is decoded into a type of k8s.io/api, or of the author's own,
// and the changes of a mutating handler become a patch.
//
//	hostsdk.Mutate("team-label.example.com", kube.Mutate(teamLabel))
//
//	func teamLabel(ctx context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
//		metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", teamOf(r.Namespace()))
//		return hostsdk.Allow(), nil
//	}
//
// An initializer returns the object as it should be created, see [Initialize].
//
// # Fields that the types do not know
//
// A host is seldom built with the types of exactly the cluster's version. The patch is the difference between the
// decoded object and the changed one, applied to the object as it was sent: fields unknown to the types stay as they
// are, and so does the spelling of everything that the handler left alone. Only removed fields go, with all
// that is in it. Items of lists are followed when the handler adds, removes or moves some: equal ones first, then by
// name or another key of theirs, then by position.
//
// # Limits
//
// The package knows no scheme, converts no versions and defaults nothing; a handler sees the object as the API server
// sent it. It depends on no version of k8s.io in particular: the types are the caller's.
//
// All functions may be called from any goroutine.
package kube
