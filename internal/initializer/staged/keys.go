package staged

import (
	"net/url"
	"strings"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// keyOf returns the key of etcd below a prefix. The version of the resource is no part of it, since an object has one name in all
// versions. Each part is escaped, so that no name reaches the key of another object or cluster.
func keyOf(prefix string, k *initializerv1.StagedKey) string {
	parts := []string{k.GetCluster(), k.GetResource().GetGroup(), k.GetResource().GetResource(), k.GetNamespace(), k.GetName()}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return prefix + strings.Join(parts, "/")
}

// clusterOf returns the cluster of a key; empty if it is none of keyOf.
func clusterOf(prefix, key string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	cluster, _ := url.PathUnescape(first) // empty with an error
	return cluster
}
