package match

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// hook compiles the webhook at position i of o.
func (c *compiler) hook(o Object, i int, w *webhook) *Hook {
	h := &Hook{
		ID: HookID{
			Scope: o.Scope, Stage: w.stage, Configuration: o.key().name, Name: w.Name, Index: w.index,
		},
		FailurePolicy: value(w.FailurePolicy, admissionregistrationv1.Fail),
		Timeout:       timeout(w.TimeoutSeconds),
		SideEffects:   value(w.SideEffects, ""),
		Criteria: Criteria{
			MatchPolicy: value(w.MatchPolicy, admissionregistrationv1.Exact), owner: fmt.Sprintf("hook %q", w.Name), rules: w.Rules,
		},
		Policy:         o.Policy,
		Route:          o.Route,
		Except:         o.Except,
		Reinvocation:   value(w.reinvocation, admissionregistrationv1.NeverReinvocationPolicy),
		ClientConfig:   w.ClientConfig,
		ReviewVersions: w.AdmissionReviewVersions,
		position:       i,
	}
	at := func(s Severity, code, field, message string) {
		c.findings = append(c.findings, Finding{Severity: s, Code: code, Source: o.Source, Path: h.Path(field), Message: message})
	}
	c.route(h, at)
	h.Pending = h.Route.Stream && !h.Route.Immediate && slices.Contains(o.Pending, h.ID.Name)
	if h.Route.Shadow {
		h.markShadowed()
	}
	if o.Policy != nil {
		h.Criteria = *NewCriteria(fmt.Sprintf("policy %q", w.Name), o.Policy.Constraints())
		h.asks(at)
	}
	c.selectors(h, w, at)
	if h.entryNamespaces = h.namespaceSelector; o.Policy != nil {
		h.entryNamespaces = h.namespaceSelector.and(o.Policy.BindingNamespaces())
	}
	if len(w.MatchConditions) > 0 {
		h.conditions = newConditions(c.expressionsFor(o, i, w), h, w)
		c.matchConditions(h, w, at)
	}
	h.fingerprint = newFingerprint(h)
	return h
}

// markShadowed lets nothing that goes wrong about a hook in shadow refuse a request. One call is enough to
// learn its verdict.
func (h *Hook) markShadowed() {
	h.FailurePolicy = admissionregistrationv1.Ignore
	h.Reinvocation = admissionregistrationv1.NeverReinvocationPolicy
}

// report adds a finding about a field of one webhook.
type report func(s Severity, code, field, message string)

func (c *compiler) route(h *Hook, report report) {
	if b := c.routes.of(h.ID); b != nil {
		h.Route, h.RoutedBy = b.Route, b.names
		c.findings = append(c.findings, b.ignoredFields(h)...)
	}
	switch {
	case h.Initializes():
		// Two hosts never take the same object, and nothing is made of it that does not count.
		h.Route.Speculate, h.Route.Hedge, h.Route.AllDenials = false, Hedge{}, false
	case h.Policy != nil: // it is judged without a call, and all of its denials are known at once
		h.Route = Route{Clusters: h.Route.Clusters, Shadow: h.Route.Shadow, AllDenials: true}
	case h.ClientConfig.URL == nil && h.ClientConfig.Service == nil:
		h.Route.Stream = true
	}
	if h.Route.Timeout > 0 {
		h.Timeout = h.Route.Timeout
	}
	if h.Initializes() && len(h.Route.Hosts) == 0 {
		report(SeverityWarning, CodeNoHost, "", "no identity may act for the initializer, so that it always runs out of time: "+
			"name the identities in spec.hosts of a HookRoute")
	} else if h.Route.Stream && len(h.Route.Hosts) == 0 {
		report(SeverityWarning, CodeNoHost, "", "the hook is served over streams and no host may serve it, so every call fails: "+
			"name the host identities in spec.hosts of a HookRoute")
	}
}

func (c *compiler) matchConditions(h *Hook, w *webhook, report report) {
	for _, err := range h.conditions.errs {
		report(SeverityError, CodeCondition, ".matchConditions", err.Error()+": "+conditionPolicy(h.FailurePolicy))
	}
	for i, condition := range w.MatchConditions {
		if strings.Contains(condition.Expression, "authorizer") {
			report(SeverityInfo, CodeAuthorizer, fmt.Sprintf(".matchConditions[%d]", i),
				"in clusters whose authorizer cannot be asked the condition fails: "+conditionPolicy(h.FailurePolicy))
		}
	}
}

func timeout(seconds *int32) time.Duration {
	if seconds == nil {
		return DefaultTimeout
	}
	return time.Duration(*seconds) * time.Second
}

func value[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
