// Package custom converts custom resources between the versions of their CustomResourceDefinition, as the server of custom resources does:
// k8s.io/apiextensions-apiserver v0.36.3, pkg/apiserver/conversion. It also lists the ways in which a custom resource can be reached, for matchPolicy
// Equivalent.
//
// A [Definition] is compiled once from a CustomResourceDefinition, never changes, and may be used concurrently. With strategy None only the
// apiVersion of an object changes, and not a byte besides. With strategy Webhook the cluster's conversion webhook is asked, one object at a time, and
// its answer is distrusted as the original distrusts it: it may change everything of an object but its identity and its metadata, of which only
// labels and annotations are its own.
//
// After a patch the defaults of the schema are filled in, by [Definition.Default]: kept of a schema are its defaults alone.
//
// Nothing here is a matter of failure policies: who cannot convert an object cannot let it pass either. Each error fails the request.
//
// Two things differ from the original on purpose: an answer has to be JSON (the original goes on to try YAML and protobuf), and objects keep the
// spelling of their numbers.
//
// The package does no I/O of its own; a [Caller] does.
package custom
