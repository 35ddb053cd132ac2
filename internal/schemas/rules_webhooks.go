package schemas

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// maxMatchConditions is the limit of Kubernetes (pkg/apis/admissionregistration/validation).
const maxMatchConditions = 64

// webhookRules mirror the validation of admissionregistration.k8s.io/v1, as far as schemas can say it. Lists have no bound there, so
// there is none here, and expressions about each item of a list in a list would exceed the cost budget: patterns and the like stand
// in their place, and the rest is for the decoder.
func webhookRules() map[string]rule {
	rules := map[string]rule{
		"webhooks":                             byName(),
		"webhooks[]":                           optional("clientConfig"),
		"webhooks[].name":                      like(fullName, validation.DNS1123SubdomainMaxLength),
		"webhooks[].admissionReviewVersions":   items(1, 0),
		"webhooks[].admissionReviewVersions[]": like(`[a-z]([-a-z0-9]*[a-z0-9])?`, validation.DNS1035LabelMaxLength),
		"webhooks[].sideEffects":               oneOf("None", "NoneOnDryRun"),
		"webhooks[].failurePolicy":             oneOf("Ignore", "Fail"),
		"webhooks[].matchPolicy":               oneOf("Exact", "Equivalent"),
		"webhooks[].timeoutSeconds":            between(1, 30),
		"webhooks[].clientConfig": all(
			cel("!has(self.url) || !has(self.service)", "exactly one of url and service is required, or neither for a hook that hosts serve", ""),
			cel("has(self.url) || has(self.service) || !has(self.caBundle) || self.caBundle == ''",
				"a caBundle needs a url or a service", ""),
		),
		// The format "byte" refuses an empty text and lines.
		"webhooks[].clientConfig.caBundle": all(func(s *schema) { s.Format = "" }, like(`[A-Za-z0-9+/=\r\n]*`, 0)),
		// Also an empty query or fragment, as Go's net/url has it.
		"webhooks[].clientConfig.url":               like(`[hH][tT][tT][pP][sS]://[^/?#@]+(/[^?#]*)?\??#?`, 0),
		"webhooks[].clientConfig.service.name":      some,
		"webhooks[].clientConfig.service.namespace": some,
		"webhooks[].clientConfig.service.port":      between(1, 65535),
		"webhooks[].clientConfig.service.path":      like(`/?|(/`+subdomain+`)+/?`, 0),
	}
	maps.Copy(rules, selectorRules("webhooks[].namespaceSelector"))
	maps.Copy(rules, selectorRules("webhooks[].objectSelector"))
	maps.Copy(rules, conditionRules("webhooks[].matchConditions"))
	maps.Copy(rules, resourceRules("webhooks[].rules[]"))
	return rules
}

// mutatingRules are the rules of mutating webhooks.
func mutatingRules() map[string]rule {
	rules := webhookRules()
	rules["webhooks[].reinvocationPolicy"] = oneOf("Never", "IfNeeded")
	return rules
}

// initializerRules are the rules of initializers: the rules of webhooks for fewer fields, and no subresources.
func initializerRules() map[string]rule {
	everyOrSome := all(items(1, 0), everyAlone)
	return map[string]rule{
		"initializers":                         byName(),
		"initializers[].name":                  like(fullName, validation.DNS1123SubdomainMaxLength),
		"initializers[].failurePolicy":         oneOf("Ignore", "Fail"),
		"initializers[].rules[].apiGroups":     everyOrSome,
		"initializers[].rules[].apiVersions":   everyOrSome,
		"initializers[].rules[].apiVersions[]": some,
		"initializers[].rules[].resources":     everyOrSome,
		"initializers[].rules[].resources[]":   like(`[^/]+`, 0),
	}
}

// conditionRules are the rules of a list of matchConditions.
func conditionRules(path string) map[string]rule {
	return map[string]rule{
		path: all(items(0, maxMatchConditions), byName()),
		path + "[].name": like("("+subdomain+"/)?"+qualified,
			validation.DNS1123SubdomainMaxLength+1+validation.LabelValueMaxLength),
		path + "[].expression": some,
	}
}

// resourceRules are the rules of operations and resources that something matches.
func resourceRules(path string) map[string]rule {
	return map[string]rule{
		path:                    require("operations", "apiGroups", "apiVersions", "resources"),
		path + ".operations":    all(items(1, 0), everyAlone),
		path + ".operations[]":  oneOf("*", "CREATE", "UPDATE", "DELETE", "CONNECT"),
		path + ".apiGroups":     all(items(1, 0), everyAlone),
		path + ".apiVersions":   all(items(1, 0), everyAlone),
		path + ".apiVersions[]": some,
		path + ".resources":     items(1, 0),
		path + ".resources[]":   some,
		path + ".scope":         oneOf("*", "Cluster", "Namespaced"),
	}
}

func selectorRules(path string) map[string]rule {
	return map[string]rule{
		path:                                  func(s *schema) { s.XMapType = ptr.To("atomic") },
		path + ".matchLabels{}":               like(labelValue, validation.LabelValueMaxLength),
		path + ".matchExpressions[].key":      some,
		path + ".matchExpressions[].operator": oneOf("In", "NotIn", "Exists", "DoesNotExist"),
	}
}

// some requires a text that is not empty.
func some(s *schema) { s.MinLength = ptr.To(int64(1)) }

// everyAlone requires that "*", which stands for all, stands alone.
func everyAlone(s *schema) {
	notEvery := schema{Not: &schema{Enum: words("*")}}
	s.AnyOf = []schema{{MaxItems: ptr.To(int64(1))}, {Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &notEvery}}}
}
