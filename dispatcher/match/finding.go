package match

import (
	"cmp"
	"fmt"
)

// Severity ranks findings by their effect on the configuration.
type Severity string

// The severities.
const (
	// SeverityError: the object, or a part of it, does not work as written.
	SeverityError Severity = "error"
	// SeverityWarning: it works, and is probably a mistake.
	SeverityWarning Severity = "warning"
	// SeverityInfo: something to know, nothing to do.
	SeverityInfo Severity = "info"
)

// The codes of findings. Tools match on them; messages are for people.
const (
	// CodeRejected: the object could not be compiled and is not in the snapshot.
	CodeRejected = "rejected"
	// CodeDuplicate: an object of the same kind, name and scope came before; this one is not in the snapshot.
	CodeDuplicate = "duplicate"
	// CodeSelector: a selector cannot be parsed; reviews that reach it are refused with 500 (SEMANTICS C16).
	CodeSelector = "selector"
	// CodeCondition: a matchCondition does not compile; the failurePolicy of the hook decides about every review.
	CodeCondition = "condition"
	// CodeAuthorizer: a matchCondition or a policy asks the authorizer, which not every cluster need have (Cluster.Authorizer).
	CodeAuthorizer = "authorizer"
	// CodeNamespaceObject: a policy reads namespaceObject, which not every cluster need have (Cluster.Objects).
	CodeNamespaceObject = "namespace-object"
	// CodeParams: a policy has params, which not every cluster need have (Cluster.Objects).
	CodeParams = "params"
	// CodeNoHost: the hook is served over streams and no host identity is granted.
	CodeNoHost = "no-host"
	// CodeRouteUnused: the route names no hook of this configuration.
	CodeRouteUnused = "route-unused"
	// CodeRouteOverridden: every hook that the route names has a more precise route, so that it has no effect.
	CodeRouteOverridden = "route-overridden"
	// CodeRouteConflict: routes name exactly the same hooks; none of them counts where they differ.
	CodeRouteConflict = "route-conflict"
	// CodeNoEffect: a route asks for something that the hook cannot give.
	CodeNoEffect = "no-effect"
	// CodeInitializerOrder: routes order initializers in a cycle, or name an initializer that does not exist.
	CodeInitializerOrder = "initializer-order"
	// CodeSideEffects: a hook in shadow is called, and has side effects.
	CodeSideEffects = "side-effects"
)

// Finding is something that compiling noticed. An object without an error finding is in the snapshot as written.
type Finding struct {
	// Severity sorts the finding.
	Severity Severity
	// Code is a code of this package.
	Code string
	// Source is where the object was read from; empty when the caller did not say.
	Source string
	// Path names the object and the field, for example
	// "ValidatingWebhookConfiguration/imagepolicy webhooks[0].namespaceSelector".
	Path string
	// Message is for the person who wrote the configuration.
	Message string
}

func (f Finding) compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.Path, other.Path), cmp.Compare(f.Source, other.Source), cmp.Compare(f.Message, other.Message))
}

// String is the finding in one line.
func (f Finding) String() string {
	if f.Source == "" {
		return fmt.Sprintf("%s: %s: %s (%s)", f.Severity, f.Path, f.Message, f.Code)
	}
	return fmt.Sprintf("%s: %s: %s: %s (%s)", f.Severity, f.Source, f.Path, f.Message, f.Code)
}
