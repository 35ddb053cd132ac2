// Package lint finds configuration that is valid and probably a mistake: hooks that can never be called, clusters without a
// document, duplicate names, timeouts that exceed the budget together, and hooks that can stop a cluster. No finding keeps a
// configuration from coming into force. Every finding is certain.
//
// It is pure, and its cost grows with the number of hooks and not with its square. Its functions may be called from any
// goroutine.
package lint

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// The codes of findings, beside the codes of dangers. Tools match on them; messages are for people.
const (
	// CodeNeverMatches: no request can ever match a hook, or match a value in a rule of it.
	CodeNeverMatches = registration.CodeExcluded
	// CodeConditionFails: a matchCondition fails for every request of some kind.
	CodeConditionFails = "condition-fails"
	// CodeNoCluster: a route names a cluster that no Cluster document has.
	CodeNoCluster = "no-cluster"
	// CodeNoNamespaces: a hook selects by the labels of namespaces, and a Cluster does not say where these are known.
	CodeNoNamespaces = "no-namespaces"
	// CodeSameName: another hook that the same requests may meet has the same name.
	CodeSameName = "same-name"
	// CodeTimeoutBudget: hooks that are called one after the other may need more time than API servers wait.
	CodeTimeoutBudget = registration.CodeTimeout
	// CodeWildcard: wildcards in the rules of a hook do not cover leases and events.
	CodeWildcard = registration.CodeWildcard
	// CodeAnyAuthority: a document grants something to identities, and several authorities can issue them.
	CodeAnyAuthority = "any-authority"
	// CodeCABundle: the caBundle of a webhook is not certificates in PEM.
	CodeCABundle = "ca-bundle"
	// CodeCapabilityExpires: a capability of a cluster has expired, or does so within ExpiresSoon.
	CodeCapabilityExpires = "capability-expires"
	// CodeCapabilityShared: two clusters have one capability.
	CodeCapabilityShared = "capability-shared"
	// CodeTypeCheck: an expression of a policy has a type error for a kind that the policy matches.
	CodeTypeCheck = "type-check"
	// CodeParamsUnused: PolicyParams have objects of a kind that no policy has params of.
	CodeParamsUnused = "params-unused"
	// CodeParamsMissing: a binding denies, since the configuration has params of its kind and lacks the param that it names.
	CodeParamsMissing = "params-missing"
	// CodeWideFailOpen: resources that give power always fail open in a cluster, or every resource does.
	CodeWideFailOpen = "wide-fail-open"
)

// Refuses reports whether ConfigService refuses documents for a finding, which no acknowledgement changes. Initializers that exceed the budget by
// themselves leave the last of them no time to count on. Of two initializers of one name in a cluster, a client cannot say which has to act.
func Refuses(p config.Problem) bool {
	return p.Key.Kind == kinds.InitializersKind && (p.Code == CodeTimeoutBudget || p.Code == CodeSameName)
}

// Options are the facts that differ from one installation to another.
type Options struct {
	// OwnNamespace is where the mesh runs; empty when it does not run in a cluster that it serves.
	OwnNamespace string
	// MutateBudget is how long API servers wait for the mutating hooks of one request; 0 leaves CodeTimeoutBudget out.
	MutateBudget time.Duration
	// Authorities returns how many authorities are trusted now. It may be called concurrently; nil leaves CodeAnyAuthority out.
	Authorities func() Authorities
	// Now is the clock. It may be called concurrently; nil leaves CodeCapabilityExpires out.
	Now func() time.Time
	// TypeChecks keeps the warnings about types in policies; nil checks each policy each time. It has to be nil with Definitions.
	TypeChecks *TypeChecks
	// Definitions are of kinds whose types are checked, beside those in Cluster documents.
	Definitions []apiextensionsv1.CustomResourceDefinition
}

// Inspect returns the findings about a snapshot and its objects, as warnings, for store.Options. ctx bounds the evaluation of
// matchConditions.
func (o Options) Inspect(ctx context.Context, s *match.Snapshot, objects []config.Object) config.Problems {
	return o.InspectOnly(ctx, s, objects, func(config.Key) bool { return true })
}

// InspectOnly is Inspect for some of the objects, and for their effects on others. ConfigService calls it.
func (o Options) InspectOnly(
	ctx context.Context, s *match.Snapshot, objects []config.Object, only func(config.Key) bool,
) config.Problems {
	return config.ProblemsOf(findings(ctx, s, objects, o, only), objects)
}

// findings are warnings, dangers first.
func findings(
	ctx context.Context, s *match.Snapshot, objects []config.Object, o Options, only func(config.Key) bool,
) []match.Finding {
	about := func(h *match.Hook) bool { return only(config.KeyOf(h)) }
	all := Dangers(ctx, s, o.OwnNamespace, about)
	for _, check := range []func() []match.Finding{
		func() []match.Finding { return EntryDangers(s, declared(objects), about) },
		func() []match.Finding { return neverMatching(s.Hooks(), about) },
		func() []match.Finding { return wildcardsInVain(s.Hooks(), about) },
		func() []match.Finding { return ownEntries(s.Hooks(), objects, about) },
		func() []match.Finding { return unknownClusters(objects, only) },
		func() []match.Finding { return namespacesUnknown(s.Hooks(), objects, about, only) },
		func() []match.Finding { return badBundles(s.Hooks(), objects, about, only) },
		func() []match.Finding { return anyAuthority(objects, o.trusted(), only) },
		func() []match.Finding { return capabilities(objects, o.Now, only) },
		func() []match.Finding { return wideFailOpen(objects, only) },
		func() []match.Finding { return paramFindings(objects, only) },
		func() []match.Finding { return o.TypeChecks.typeErrors(ctx, objects, o.Definitions, only) },
		func() []match.Finding { return sameNames(s.Hooks(), about) },
		func() []match.Finding { return overBudget(ctx, s, o.MutateBudget, about, MaxSampleCost) },
	} {
		all = append(all, try(check)...)
	}
	return all
}

// trusted are how many authorities there are, if that is known.
func (o Options) trusted() Authorities {
	if o.Authorities == nil {
		return Authorities{}
	}
	return o.Authorities()
}

// try makes a panic a finding: a defect in advice must not keep a configuration from coming into force.
func try(check func() []match.Finding) (findings []match.Finding) {
	defer func() {
		if p := recover(); p != nil {
			findings = []match.Finding{{
				Severity: match.SeverityWarning, Code: config.CodeInternal,
				Message: fmt.Sprintf("the search for probable mistakes failed, which is a defect of portcullis: %v", p),
			}}
		}
	}()
	return check()
}

// warning is a finding of this package.
func warning(code, path, format string, args ...any) match.Finding {
	return match.Finding{Severity: match.SeverityWarning, Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}
