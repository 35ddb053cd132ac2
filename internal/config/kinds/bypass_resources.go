package kinds

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxFailOpen bounds Bypass.FailOpen. A matchCondition of the entries has all of it, and an API server takes 100,000 characters
	// in one.
	MaxFailOpen = 8
	// MaxFailOpenNames bounds each list of a BypassResources.
	MaxFailOpenNames = 16
	// MaxFailOpenResource bounds each of BypassResources.Resources, in bytes: two labels of DNS, and a slash.
	MaxFailOpenResource = 2*validation.DNS1123LabelMaxLength + 1
	// FailOpenResourcePattern is the pattern of BypassResources.Resources.
	FailOpenResourcePattern = `(\*|` + resourceLabel + `)(/(\*|` + resourceLabel + `))?`

	resourceLabel = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
)

// BypassResources are resources in all of their versions, in each of the groups.
type BypassResources struct {
	// APIGroups are the groups by which clients ask for the resources: "" is the core group, and "*" is every group. A resource
	// that is served by two groups always fails open in those that stand here.
	APIGroups []string `json:"apiGroups"`
	// Resources are named as in the rules of a webhook: "leases", "pods/status", "pods/*", "*/status", "*", "*/*". Wildcards do not
	// cover leases and events.
	Resources []string `json:"resources"`
}

func (r *BypassResources) validate(path *field.Path) field.ErrorList {
	return append(validateFailOpenNames(r.APIGroups, path.Child("apiGroups"), checkAPIGroup),
		validateFailOpenNames(r.Resources, path.Child("resources"), checkResource)...)
}

func validateFailOpenNames(names []string, path *field.Path, check func(string) []string) field.ErrorList {
	if len(names) == 0 {
		return field.ErrorList{field.Required(path, `name at least one; the core group is ""`)}
	}
	return validateEach(names, MaxFailOpenNames, path, check)
}

func checkAPIGroup(name string) []string {
	if name == "" || name == "*" {
		return nil
	}
	return validation.IsDNS1123Subdomain(name)
}

func checkResource(name string) []string {
	if matched, err := regexp.MatchString("^("+FailOpenResourcePattern+")$", name); err != nil || !matched || len(name) > MaxFailOpenResource {
		return []string{"must be a resource as in the rules of a webhook, for example leases or pods/status"}
	}
	return nil
}
