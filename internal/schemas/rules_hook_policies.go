package schemas

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxAuditAnnotations is the limit of Kubernetes.
const maxAuditAnnotations = 20

// hookPolicyRules mirror the validation of policies in admissionregistration.k8s.io/v1, but for expressions. As there, lists have no bound.
func hookPolicyRules() map[string]rule {
	rules := matchRules("spec.matchConstraints")
	maps.Copy(rules, conditionRules("spec.matchConditions"))
	version := like(`((`+subdomain+`)?/)?[a-z]([-a-z0-9]*[a-z0-9])?`, validation.DNS1123SubdomainMaxLength+1+validation.DNS1035LabelMaxLength)
	maps.Copy(rules, map[string]rule{
		"spec":                                require("matchConstraints"),
		"spec.matchConstraints":               require("resourceRules"),
		"spec.matchConstraints.resourceRules": items(1, 0),
		"spec.paramKind":                      require("apiVersion", "kind"),
		"spec.paramKind.apiVersion":           version,
		"spec.paramKind.kind":                 some,
		"spec.failurePolicy":                  oneOf("Ignore", "Fail"),
		"spec.variables[].name":               like(identifier, 0),
		"spec.variables[].expression":         like(written, 0),
	})
	return rules
}

// validatingPolicyRules are the rules of a ValidatingHookPolicy.
func validatingPolicyRules() map[string]rule {
	rules := hookPolicyRules()
	maps.Copy(rules, map[string]rule{
		"spec": all(rules["spec"], cel("has(self.validations) && size(self.validations) > 0 || has(self.auditAnnotations) && size(self.auditAnnotations) > 0",
			"validations or auditAnnotations must contain at least one item", ".validations")),
		"spec.validations[].expression":           like(written, 0),
		"spec.validations[].message":              like("|"+written, 0),
		"spec.validations[].messageExpression":    like("|"+written, 0),
		"spec.validations[].reason":               oneOf("Forbidden", "Invalid", "RequestEntityTooLarge"),
		"spec.auditAnnotations":                   all(items(0, maxAuditAnnotations), by("key")),
		"spec.auditAnnotations[].key":             like(qualified, validation.LabelValueMaxLength),
		"spec.auditAnnotations[].valueExpression": like(written, 0),
	})
	return rules
}

// mutatingPolicyRules are the rules of a MutatingHookPolicy.
func mutatingPolicyRules() map[string]rule {
	rules := hookPolicyRules()
	alone := func(field, other string) string { return "has(self." + field + ") && !has(self." + other + ")" }
	maps.Copy(rules, withoutDelete("spec.matchConstraints"))
	maps.Copy(rules, map[string]rule{
		"spec":                       require("matchConstraints", "mutations", "reinvocationPolicy"),
		"spec.mutations":             items(1, 0),
		"spec.mutations[].patchType": oneOf("ApplyConfiguration", "JSONPatch"),
		"spec.mutations[]": cel("self.patchType == 'JSONPatch' ? "+alone("jsonPatch", "applyConfiguration")+" : "+alone("applyConfiguration", "jsonPatch"),
			"the field that patchType names is required, and the other one must not be there", ""),
		"spec.mutations[].jsonPatch":                     require("expression"),
		"spec.mutations[].jsonPatch.expression":          like(written, 0),
		"spec.mutations[].applyConfiguration":            require("expression"),
		"spec.mutations[].applyConfiguration.expression": like(written, 0),
		"spec.reinvocationPolicy":                        oneOf("Never", "IfNeeded"),
	})
	return rules
}

// policyBindingRules mirror the validation of bindings.
func policyBindingRules() map[string]rule {
	rules := matchRules("spec.matchResources")
	maps.Copy(rules, selectorRules("spec.paramRef.selector"))
	maps.Copy(rules, map[string]rule{
		"spec":            require("policyName"),
		"spec.policyName": name(),
		"spec.paramRef": all(require("parameterNotFoundAction"),
			cel("has(self.selector) != (has(self.name) && self.name != '')", "one of name and selector is required, and not both", "")),
		"spec.paramRef.name":                    like(`[^/%]*`, 0),
		"spec.paramRef.parameterNotFoundAction": oneOf("Allow", "Deny"),
	})
	return rules
}

// validatingBindingRules are the rules of a ValidatingHookPolicyBinding.
func validatingBindingRules() map[string]rule {
	rules := policyBindingRules()
	actions := []string{"Audit", "Deny", "Warn"}
	rules["spec"] = require("policyName", "validationActions")
	rules["spec.validationActions"] = all(items(1, 0), set(len(actions), oneOf(actions...)),
		cel("!('Deny' in self && 'Warn' in self)", "must not contain both Deny and Warn", ""))
	return rules
}

// mutatingBindingRules are the rules of a MutatingHookPolicyBinding.
func mutatingBindingRules() map[string]rule {
	rules := policyBindingRules()
	maps.Copy(rules, withoutDelete("spec.matchResources"))
	return rules
}

// withoutDelete has the resourceRules of mutating policies name no DELETE. The rules that exclude resources may.
func withoutDelete(path string) map[string]rule {
	return map[string]rule{path + ".resourceRules[].operations[]": oneOf("*", "CREATE", "UPDATE", "CONNECT")}
}

// matchRules are the rules of matchConstraints and matchResources.
func matchRules(path string) map[string]rule {
	rules := map[string]rule{path + ".matchPolicy": oneOf("Exact", "Equivalent")}
	for _, list := range []string{".resourceRules[]", ".excludeResourceRules[]"} {
		maps.Copy(rules, resourceRules(path+list))
		rules[path+list+".resourceNames[]"] = like(`[^/%]*`, 0)
	}
	for _, selector := range []string{".namespaceSelector", ".objectSelector"} {
		maps.Copy(rules, selectorRules(path+selector))
	}
	return rules
}
