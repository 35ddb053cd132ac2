package match

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Criteria are the requests that a hook, a policy or a binding of a policy is for, by rules and selectors. They are immutable.
type Criteria struct {
	// MatchPolicy is Exact when the configuration does not say, as kube-apiserver reads an absent one.
	MatchPolicy admissionregistrationv1.MatchPolicyType

	owner             string // in errors
	everything        bool   // each resource is covered
	rules             []admissionregistrationv1.RuleWithOperations
	names             [][]string // resourceNames by rule, of a policy; an empty list means every name
	excluded          *Criteria  // by rules alone; nil for none
	namespaceSelector selector
	objectSelector    selector
}

// NewCriteria compiles the matchConstraints of a policy or the matchResources of its binding, which have their defaults; nil means every request.
// owner names the document in errors.
func NewCriteria(owner string, m *admissionregistrationv1.MatchResources) *Criteria {
	if m == nil {
		m = &admissionregistrationv1.MatchResources{}
	}
	c := namedCriteria(owner, m.ResourceRules, m.MatchPolicy)
	c.everything = len(m.ResourceRules) == 0
	if len(m.ExcludeResourceRules) > 0 {
		c.excluded = namedCriteria(owner, m.ExcludeResourceRules, m.MatchPolicy)
	}
	c.namespaceSelector, c.objectSelector = newSelector(m.NamespaceSelector), newSelector(m.ObjectSelector)
	return c
}

func namedCriteria(owner string, rules []admissionregistrationv1.NamedRuleWithOperations, p *admissionregistrationv1.MatchPolicyType) *Criteria {
	c := &Criteria{MatchPolicy: value(p, admissionregistrationv1.Exact), owner: owner}
	for i := range rules {
		c.rules, c.names = append(c.rules, rules[i].RuleWithOperations), append(c.names, rules[i].ResourceNames)
	}
	return c
}

// NamespaceSelector is the namespaceSelector as written; nil when there is none. The caller must not change it.
func (c *Criteria) NamespaceSelector() *metav1.LabelSelector { return c.namespaceSelector.source }

// Match decides whether a request meets the criteria, as Matcher.Matches of k8s.io/apiserver's plugin/policy/matching does: selectors, excludeResourceRules,
// resourceRules, and only then the selectors' errors. equivalent is the resource that the rules cover; skip is the reason that they do not, a Skip constant.
// Exactly one result is set. Criteria of a policy or binding without rules cover each resource.
func (c *Criteria) Match(ctx context.Context, a *Attributes) (equivalent *conversion.ResourceKind, skip string, err *apierrors.StatusError) {
	inNamespace, nsErr := c.matchNamespace(ctx, a)
	if !inNamespace && nsErr == nil {
		return nil, SkipNamespaceSelector, nil
	}
	selected, objErr := c.matchObject(a)
	if !selected && objErr == nil {
		return nil, SkipObjectSelector, nil
	}
	if c.excluded != nil {
		if _, excluded, err := c.excluded.covers(a.request); err != nil {
			return nil, "", err
		} else if excluded {
			return nil, SkipExcluded, nil
		}
	}
	covered := c.everything
	if equivalent = a.requested; !covered {
		equivalent, covered, err = c.covers(a.request)
	}
	switch {
	case err != nil:
		return nil, "", err
	case !covered:
		return nil, SkipRules, nil
	case nsErr != nil:
		return nil, "", nsErr
	case objErr != nil:
		return nil, "", objErr
	}
	return equivalent, "", nil
}

// mismatch is the first field of a rule that does not cover the request on resource; empty when the rule covers it.
func (c *Criteria) mismatch(i int, r *request, resource schema.GroupVersionResource) string {
	if field := mismatch(&c.rules[i], r, resource); field != "" {
		return field
	}
	if c.names != nil && len(c.names[i]) > 0 && !slices.Contains(c.names[i], r.req.GetName()) {
		return "resourceNames"
	}
	return ""
}
