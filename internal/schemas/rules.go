package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Patterns of names, as in k8s.io/apimachinery/pkg/util/validation. They mean the same to Go and to the editors' JavaScript.
const (
	label     = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	subdomain = label + `(\.` + label + `)*`
	// fullName has three labels or more.
	fullName  = label + `(\.` + label + `){2,}`
	authority = `sha256:[0-9a-f]{64}|spiffe://[a-z0-9._-]+`
	// qualified is a name as labels have them, without a prefix.
	qualified = `[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`
	// trimmed is a text without white space around it.
	trimmed = `\S([\s\S]*\S)?`
	// written is a text that is not white space alone, and identifier a name in CEL.
	written    = `[\s\S]*\S[\s\S]*`
	identifier = `[A-Za-z_][A-Za-z0-9_]*`
	labelValue = `([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?`
	// address is an IPv6 address; an IPv4 address is a subdomain too.
	address = `[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%[\s\S]+)?`
)

// all applies rules in their order.
func all(rules ...rule) rule {
	return func(s *schema) {
		for _, r := range rules {
			r(s)
		}
	}
}

// like requires that a text has a pattern, and at most so many characters; 0 for no bound.
func like(pattern string, most int) rule {
	return func(s *schema) {
		if s.Pattern = "^(" + pattern + ")$"; most > 0 {
			s.MaxLength = ptr.To(int64(most))
		}
	}
}

// name requires a name that Kubernetes takes for a cluster-scoped object.
func name() rule { return like(subdomain, validation.DNS1123SubdomainMaxLength) }

// oneOf requires a word of a list.
func oneOf(allowed ...string) rule { return func(s *schema) { s.Enum = words(allowed...) } }

// words are JSON strings.
func words(texts ...string) (values []apiextensionsv1.JSON) {
	for _, text := range texts {
		raw, _ := json.Marshal(text) //nolint:errchkjson // a string
		values = append(values, apiextensionsv1.JSON{Raw: raw})
	}
	return values
}

// between bounds a number.
func between(least, most float64) rule {
	return func(s *schema) { s.Minimum, s.Maximum = ptr.To(least), ptr.To(most) }
}

// items bounds a list.
func items(least, most int) rule {
	return func(s *schema) {
		if least > 0 {
			s.MinItems = ptr.To(int64(least))
		}
		if most > 0 {
			s.MaxItems = ptr.To(int64(most))
		}
	}
}

// set is a list in which nothing stands twice, with a rule for each item.
func set(most int, each ...rule) rule {
	return func(s *schema) {
		s.MaxItems, s.XListType = ptr.To(int64(most)), ptr.To("set")
		all(each...)(s.Items.Schema)
	}
}

// byName is a list of objects that their names tell apart.
func byName() rule { return by("name") }

// by is a list of objects that a field tells apart.
func by(key string) rule {
	return func(s *schema) { s.XListType, s.XListMapKeys = ptr.To("map"), []string{key} }
}

// require makes properties required.
func require(names ...string) rule {
	return func(s *schema) {
		s.Required = append(s.Required, names...)
		slices.Sort(s.Required)
	}
}

// optional makes a property optional.
func optional(name string) rule {
	return func(s *schema) { s.Required = slices.DeleteFunc(s.Required, func(n string) bool { return n == name }) }
}

// cel requires that an expression holds; the message is the decoder's.
func cel(expression, message, path string) rule {
	return func(s *schema) {
		s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: expression, Message: message, FieldPath: path})
	}
}

// duration requires a duration as Go writes them, or nothing.
func duration(least, most time.Duration) rule {
	return all(
		func(s *schema) { s.MaxLength = ptr.To(int64(kinds.MaxDurationLength)) },
		cel(fmt.Sprintf("self == '' || duration(self) >= duration('%s') && duration(self) <= duration('%s')", least, most),
			fmt.Sprintf(`must be a number with a unit, for example "250ms" or "2s", between %s and %s`, least, most), ""),
	)
}

// seconds requires the timeout of an entry.
func seconds() rule { return wholeSeconds(kinds.MinEntryTimeout, kinds.MaxEntryTimeout) }

func wholeSeconds(least, most time.Duration) rule {
	return all(duration(least, most),
		cel("self == '' || duration(self).getMilliseconds() % 1000 == 0", "must be whole seconds", ""))
}

// moment requires a time as RFC 3339 writes them.
func moment(also string) rule {
	return all(
		func(s *schema) { s.MaxLength = ptr.To(int64(kinds.MaxTimeLength)) },
		cel(also+"timestamp(self) >= timestamp('0001-01-01T00:00:00Z')", "must be a time, as in 2026-01-02T15:04:05Z", ""),
	)
}

func identities() rule { return set(kinds.MaxListItems, like(trimmed, 0)) }

func authorities() rule { return set(kinds.MaxAuthorities, like(authority, 0)) }

func selected() rule {
	return cel("has(self.matchLabels) && self.matchLabels.size() > 0 || has(self.matchExpressions) && self.matchExpressions.size() > 0",
		"select by label: an empty selector would select every webhook configuration of the cluster", "")
}

func webhookHosts() rule {
	return set(kinds.MaxListItems, like(`(\*\.)?`+subdomain+"|"+address, validation.DNS1123SubdomainMaxLength+2))
}

func names() rule { return set(kinds.MaxListItems, name()) }

// byController permits a field without a stream to the route of an initializer.
const byController = "has(self.stage) && self.stage == 'initialize' || "

// streamed forbids a field of a route without a stream, but for a value that is as good as none.
func streamed(field, none, message string) rule {
	return cel(fmt.Sprintf("!has(self.%s) || %shas(self.stream)", field, none), message, "."+field)
}

// routeRules mirror kinds.HookRoute.Validate.
func routeRules() map[string]rule {
	return map[string]rule{
		"spec": all(
			streamed("hosts", "size(self.hosts) == 0 || "+byController,
				"hosts serve streams only: add `stream: {}`, or `stage: initialize` for an initializer, or remove the hosts"),
			streamed("authorities", "size(self.authorities) == 0 || "+byController,
				"they vouch for hosts, which serve streams only: add `stream: {}`, or remove them"),
			streamed("rotation", "self.rotation == '' || ", "only hosts answer probes: add `stream: {}`, or remove the rotation"),
			streamed("hedge", "", "only hosts have other replicas to ask: add `stream: {}`, or remove the hedge"),
		),
		"spec.configuration": name(),
		"spec.hook":          like("("+fullName+")?", validation.DNS1123SubdomainMaxLength),
		"spec.stage":         oneOf("", string(kinds.StageInitialize), string(kinds.StageMutate), string(kinds.StageValidate)),
		"spec.hosts":         identities(),
		"spec.authorities":   authorities(),
		"spec.rotation":      oneOf("", string(kinds.RotationImmediate), string(kinds.RotationAfterProbe)),
		"spec.clusters":      names(),
		"spec.after":         set(kinds.MaxOrdered, like(fullName, validation.DNS1123SubdomainMaxLength)),
		"spec.before":        set(kinds.MaxOrdered, like(fullName, validation.DNS1123SubdomainMaxLength)),
		"spec.timeout":       duration(kinds.MinTimeout, kinds.MaxTimeout),
		"spec.hedge.after":   duration(kinds.MinHedgeAfter, kinds.MaxHedgeAfter),
		"spec.hedge.percent": between(kinds.MinHedgePercent, kinds.MaxHedgePercent),
	}
}

// clusterSpecRule has the rules about several fields of a Cluster.
func clusterSpecRule() rule {
	asked := func(field string) rule {
		return cel(fmt.Sprintf("!has(self.bridge) && (!has(self.kubeconfig) || self.kubeconfig == '') || !has(self.%s)", field),
			"the cluster is asked for it: remove it, or spec.kubeconfig and spec.bridge", "."+field)
	}
	return all(asked("namespaces"), asked("apiVersions"), asked("customResourceDefinitions"),
		cel("!has(self.bridge) || !has(self.kubeconfig) || self.kubeconfig == ''",
			"the cluster is asked through its bridges: remove it, or spec.bridge", ".kubeconfig"),
		cel("!has(self.follow) || has(self.kubeconfig) && self.kubeconfig != ''",
			"the webhook configurations are read from the cluster and changed there: add spec.kubeconfig", ".follow"),
		cel("!has(self.registration) || has(self.kubeconfig) && self.kubeconfig != ''",
			"needs spec.kubeconfig; without it, write the entries by `portcullis cluster register --apply`", ".registration"),
		cel("!has(self.bridge) || !has(self.rotateCapability) || self.rotateCapability == ''",
			"the API servers of the cluster show capabilities to its bridges (portcullis bridge --capability-file)", ".rotateCapability"))
}

// clusterRules mirror kinds.Cluster.Validate.
func clusterRules() map[string]rule {
	path := like(`(/[\s\S]*)?`, 0)
	bypass := func(each ...rule) rule { return set(kinds.MaxBypassNames, each...) }
	user := like(trimmed, kinds.MaxBypassNameLength)
	return map[string]rule{
		"spec":                     clusterSpecRule(),
		"spec.follow.selector":     selected(),
		"spec.follow.webhookHosts": webhookHosts(),
		"spec.identities":          identities(),
		"spec.authorities":         authorities(),
		"spec.kubeconfig":          path,
		"spec.capabilities":        all(items(0, kinds.MaxCapabilities), byName(), differ("sha256")),
		"spec.capabilities[].name": like(subdomain, kinds.MaxCapabilityName),
		"spec.capabilities[].sha256": all(
			func(s *schema) { s.MaxLength = ptr.To(int64(64)) },
			cel("self.matches('^[0-9a-f]{64}$')", "must be the SHA-256 of the capability in 64 lower-case hexadecimal digits "+
				"(`portcullis cluster capability new` prints it); if the capability itself stands here, make another one", "")),
		"spec.capabilities[].notAfter": moment("self == '' || "),
		"spec.rotateCapability":        wholeSeconds(kinds.MinCapabilityPeriod, kinds.MaxCapabilityPeriod),
		"spec.namespaces": cel("(has(self.kubeconfig) && self.kubeconfig != '') != has(self.static)",
			"exactly one of kubeconfig and static is required", ""),
		"spec.namespaces.kubeconfig":     path,
		"spec.namespaces.static":         func(s *schema) { s.MaxProperties = ptr.To(int64(kinds.MaxStaticNamespaces)) },
		"spec.namespaces.static{}":       func(s *schema) { s.Nullable = true },
		"spec.namespaces.static{}{}":     like(labelValue, validation.LabelValueMaxLength),
		"spec.apiVersions":               all(set(kinds.MaxListItems), items(1, 0)),
		"spec.apiVersions[]":             like(`[^/]*/?[^/]+`, 0),
		"spec.customResourceDefinitions": items(0, kinds.MaxListItems),
		"spec.maxConfigurationAge":       duration(kinds.MinConfigurationAge, kinds.MaxConfigurationAge),
		"spec.bypass.namespaces":         bypass(like(label, validation.DNS1123LabelMaxLength)),
		"spec.bypass.users":              bypass(user),
		"spec.bypass.groups": bypass(user, cel("!(self in ['system:authenticated', 'system:unauthenticated'])",
			"would exempt every user: remove the hooks for this cluster, or name a smaller group", "")),
		"spec.bypass.serviceAccounts": bypass(like(label+"/"+subdomain,
			validation.DNS1123LabelMaxLength+1+validation.DNS1123SubdomainMaxLength)),
		"spec.bypass.failOpen":             items(0, kinds.MaxFailOpen),
		"spec.bypass.failOpen[].apiGroups": all(items(1, 0), set(kinds.MaxFailOpenNames, like(`\*|(`+subdomain+`)?`, validation.DNS1123SubdomainMaxLength))),
		"spec.bypass.failOpen[].resources": all(items(1, 0), set(kinds.MaxFailOpenNames, like(kinds.FailOpenResourcePattern, kinds.MaxFailOpenResource))),
		"spec.registration":                oneBundle(),
		"spec.registration.caFile":         path,
		"spec.registration.url": all(like(`https://[^/?#@][^?#@]*`, kinds.MaxEntryURL),
			cel("isURL(self) && url(self).getHostname() != ''", "must be https:// and a host", "")),
		"spec.registration.caBundle": all(func(s *schema) { s.Format = "" },
			like(`[A-Za-z0-9+/=\r\n]*`, (kinds.MaxCABundle+2)/3*4)),
		"spec.registration.name":            like("("+subdomain+")?", validation.DNS1123SubdomainMaxLength),
		"spec.registration.ownNamespace":    like("("+label+")?", validation.DNS1123LabelMaxLength),
		"spec.registration.mutateTimeout":   seconds(),
		"spec.registration.reinvokeTimeout": seconds(),
		"spec.registration.validateTimeout": seconds(),
		"spec.bypass.breakGlass.until":      moment(""),
		"spec.bypass.breakGlass.reason":     like(`[\s\S]*\S[\s\S]*`, kinds.MaxBreakGlassReason),
	}
}

// oneBundle requires that the authorities of entries are in one place.
func oneBundle() rule {
	return cel("!has(self.caFile) || self.caFile == '' || !has(self.caBundle) || self.caBundle == ''",
		"the authorities are in caBundle: remove one of the two", ".caFile")
}

// differ requires that no two objects of a list have the same value in a field.
func differ(field string) rule {
	return cel(fmt.Sprintf("self.all(a, self.exists_one(b, b.%[1]s == a.%[1]s))", field), "each has a "+field+" of its own", "")
}

// paramsRules are the rules of PolicyParams. Beside these fields an object has any.
func paramsRules() map[string]rule {
	text := schema{Type: "string", MinLength: ptr.To(int64(1))}
	return map[string]rule{
		"spec.clusters": names(), "spec.objects": items(1, kinds.MaxParamObjects),
		"spec.objects[]": func(s *schema) {
			*s = schema{
				Type: "object", XPreserveUnknownFields: ptr.To(true), Required: []string{"apiVersion", "kind", "metadata"},
				Properties: map[string]schema{
					"apiVersion": text, "kind": text, "metadata": {
						Type: "object", XPreserveUnknownFields: ptr.To(true), Required: []string{"name"},
						Properties: map[string]schema{"name": text, "namespace": text, "labels": {
							Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &schema{Type: "string"}},
						}},
					},
				},
			}
		},
	}
}

// policyRules mirror kinds.Policy.Validate, but for expressions, values of parameters, and the names of resources.
func policyRules() map[string]rule {
	modes := []string{string(kinds.ModeShadow), string(kinds.ModeWarn), string(kinds.ModeEnforce)}
	excluded := func(each ...rule) rule { return set(kinds.MaxPolicyExclusions, each...) }
	text := func(most int) rule { return like(written, most) }
	return map[string]rule{
		"spec.resources":  all(items(1, 0), set(kinds.MaxPolicyResources)),
		"spec.operations": all(set(4, oneOf("CREATE", "UPDATE", "DELETE", "CONNECT"))),
		"spec.clusters":   names(), "spec.mode": oneOf(append(modes, "")...), "spec.modeByCluster{}": oneOf(modes...),
		"spec.exclude.namespaces": excluded(like(label, validation.DNS1123LabelMaxLength)), "spec.exclude.labels": excluded(),
		"spec.exclude.users": excluded(), "spec.exclude.groups": excluded(),
		"spec.parameters":               all(items(0, kinds.MaxParameters), byName()),
		"spec.parameters[].name":        like(identifier, kinds.MaxParameterName),
		"spec.failurePolicy":            oneOf("", "Fail", "Ignore"),
		"spec.validations":              items(1, kinds.MaxPolicyValidations),
		"spec.validations[].expression": text(kinds.MaxPolicyExpression), "spec.validations[].message": like(`[^\r\n]*\S[^\r\n]*`, kinds.MaxPolicyMessage),
		"spec.validations[].messageExpression": like("|"+written, kinds.MaxPolicyExpression),
		"spec.validations[].field":             like(`|[^\r\n]*\S[^\r\n]*`, kinds.MaxPolicyField),
		"spec.validations[].reason":            oneOf("", "Forbidden", "Invalid", "RequestEntityTooLarge"),
	}
}

// roleRules mirror kinds.Role.Validate.
func roleRules() map[string]rule {
	empty := func(field string) string { return fmt.Sprintf("(!has(self.%[1]s) || size(self.%[1]s) == 0)", field) }
	return map[string]rule{
		"spec": cel("self.role == 'author' || "+empty("namePrefixes")+" && "+empty("clusters")+" && "+empty("webhookHosts"),
			"only Roles of authors have these bounds: remove namePrefixes, clusters and webhookHosts", ""),
		"spec.role":         oneOf(string(kinds.RoleViewer), string(kinds.RoleAuthor), string(kinds.RoleOperator)),
		"spec.identities":   identities(),
		"spec.authorities":  authorities(),
		"spec.namePrefixes": set(kinds.MaxListItems),
		"spec.clusters":     names(),
		"spec.webhookHosts": webhookHosts(),
	}
}
