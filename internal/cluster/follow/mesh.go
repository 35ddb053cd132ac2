package follow

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Mesh is the configuration of the mesh. Its methods may be called concurrently.
type Mesh interface {
	// Live reads the configuration in force here; false while it is stale.
	Live(ctx context.Context) (Live, bool, error)
	// Write makes documents be as they are here, for a cluster. The error is a RefusedError if they are not valid, or dangerous.
	Write(ctx context.Context, cluster string, documents []Document) error
	// Remove removes copies of objects of a cluster. A missing copy is no error.
	Remove(ctx context.Context, cluster string, keys []config.Key) error
	// Reach returns an error unless this dispatcher reaches the webhook at an address of a cluster.
	Reach(ctx context.Context, cluster string, c *admissionregistrationv1.WebhookClientConfig) error
}

// Live is the configuration in force in this dispatcher at one moment.
type Live struct {
	// Snapshot is its compiled form, and Objects are its documents.
	Snapshot *match.Snapshot
	Objects  map[config.Key]config.Object
	// Everywhere reports whether every dispatcher judges by the version of an object that is in force here.
	Everywhere func(config.Key) bool
}

// RefusedError is the error about an object that cannot be followed as it is.
type RefusedError struct{ Reason string }

// Error is the reason.
func (e *RefusedError) Error() string { return e.Reason }

// IsCopy reports whether an object is the copy of an original, or its route.
func IsCopy(o *config.Object) bool {
	_, name := o.Followed()
	return name != ""
}

// copied are the names of the originals that the configuration has documents of, by the key of the copy.
func (l *Live) copied(cluster string) map[config.Key]string {
	all := map[config.Key]string{}
	for _, o := range l.Objects {
		of, name := o.Followed()
		if name == "" || of != cluster {
			continue
		}
		kind := o.Kind
		if o.Route != nil {
			if kind = validatingKind; o.Route.Spec.Stage == kinds.StageMutate {
				kind = mutatingKind
			}
		}
		key, _ := copyKeys(cluster, kind, name)
		all[key] = name
	}
	return all
}

// isCopyOf reports whether an object is made from an original of a cluster.
func isCopyOf(o *config.Object, cluster, original string) bool {
	of, name := o.Followed()
	return of == cluster && name == original
}

// copiesOf are the documents in force that are made from an original: the copy before its route.
func copiesOf(live Live, cluster string, hooks config.Key, name string) []config.Key {
	var stored []config.Key
	_, route := copyKeys(cluster, hooks.Kind, name)
	for _, key := range []config.Key{hooks, route} {
		if o := live.Objects[key]; isCopyOf(&o, cluster, name) {
			stored = append(stored, key)
		}
	}
	return stored
}

// Copies are the clusters that a configuration has copies for.
func Copies(objects map[config.Key]config.Object) map[string]bool {
	clusters := map[string]bool{}
	for _, o := range objects {
		if cluster, name := o.Followed(); name != "" {
			clusters[cluster] = true
		}
	}
	return clusters
}
