package config

import "strings"

// FollowedAnnotation is on the copy of a webhook configuration that the mesh follows, and on its HookRoute: CLUSTER/NAME of the
// original. Neither part has a slash.
const FollowedAnnotation = "portcullis.dev/followed"

// The matchCondition that switches a webhook of an original off.
const (
	// FollowedCondition is its name.
	FollowedCondition = "portcullis.dev-followed"
	// FollowedExpression is its expression.
	FollowedExpression = "false"
)

// Followed is the original of which the object is the copy, or the HookRoute of the copy; empty if it is none.
func (o *Object) Followed() (cluster, name string) {
	var annotations map[string]string
	switch {
	case o.Validating != nil:
		annotations = o.Validating.Annotations
	case o.Mutating != nil:
		annotations = o.Mutating.Annotations
	case o.Route != nil:
		annotations = o.Route.Metadata.Annotations
	}
	cluster, name, _ = strings.Cut(annotations[FollowedAnnotation], "/")
	return cluster, name
}
