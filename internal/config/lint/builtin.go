package lint

import (
	"cmp"
	"iter"
	"strings"
)

// operations are a set of operations that an API server asks hooks about.
type operations uint8

const (
	creates operations = 1 << iota
	updates
	deletes
	connects
)

// subresource is how a resource, under the empty name, or a subresource of it is served.
type subresource struct {
	operations operations
	// foreign is true if its object is of another kind than the resource, with labels of its own.
	foreign bool
}

// resource is a built-in resource of Kubernetes.
type resource struct {
	namespaced   bool
	subresources map[string]subresource
}

// builtin are the resources that Kubernetes has served since it has webhooks, by group and name.
type builtin struct {
	groups  []string // in the order for people
	byGroup map[string]map[string]*resource
}

// newBuiltin reads apiResources.
func newBuiltin() *builtin {
	b := &builtin{byGroup: map[string]map[string]*resource{}}
	for line := range strings.Lines(apiResources) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.add(groupNamed(fields[0]), fields[1], fields[2] == "namespaced", fields[3:])
		}
	}
	return b
}

// coreGroup is the name that people have for the group without one.
const coreGroup = "core"

func groupNamed(text string) string {
	if text == coreGroup {
		return ""
	}
	return text
}

// IsClusterScoped reports whether a built-in resource is in no namespace. Of others nothing is known.
func IsClusterScoped(group, name string) bool {
	return strings.Contains(apiResources, "\n"+cmp.Or(group, coreGroup)+" "+name+" cluster ")
}

func (b *builtin) add(group, name string, namespaced bool, subresources []string) {
	if b.byGroup[group] == nil {
		b.groups = append(b.groups, group)
		b.byGroup[group] = map[string]*resource{}
	}
	r := b.byGroup[group][name]
	if r == nil {
		r = &resource{namespaced: namespaced, subresources: map[string]subresource{}}
		b.byGroup[group][name] = r
	}
	for i, text := range subresources {
		sub, letters, named := strings.Cut(text, "=")
		if !named && i == 0 {
			sub, letters = "", text
		}
		letters, foreign := strings.CutSuffix(letters, "!")
		s := subresource{foreign: foreign}
		for j, letter := range "cudx" {
			if strings.ContainsRune(letters, letter) {
				s.operations |= 1 << j
			}
		}
		r.subresources[sub] = s
	}
}

// named yields the resources of a group that a rule names: all for a wildcard.
func (b *builtin) named(group, name string) iter.Seq2[string, *resource] {
	return func(yield func(string, *resource) bool) {
		if name != wildcard {
			if r := b.byGroup[group][name]; r != nil {
				yield(name, r)
			}
			return
		}
		for found, r := range b.byGroup[group] {
			if !yield(found, r) {
				return
			}
		}
	}
}

// homes are the groups that have a resource of a name.
func (b *builtin) homes(name string) []string {
	var homes []string
	for _, group := range b.groups {
		if b.byGroup[group][name] != nil {
			homes = append(homes, group)
		}
	}
	return homes
}

// apiResources are the resources of the API server's discovery (api/discovery of k8s.io/kubernetes), and those that earlier releases had:
// group, resource, scope, and the operations that hooks are asked about: create, update, delete, connect (x), or none. Then each
// subresource with its own; one whose object is of another kind than the resource has a "!".
const apiResources = `
core bindings namespaced c
core componentstatuses cluster -
core configmaps namespaced cud
core endpoints namespaced cud
core events namespaced cud
core limitranges namespaced cud
core namespaces cluster cud finalize=u status=u
core nodes cluster cud proxy=x! status=u
core persistentvolumeclaims namespaced cud status=u
core persistentvolumes cluster cud status=u
core pods namespaced cud attach=x! binding=c! ephemeralcontainers=u eviction=c! exec=x! log=- portforward=x! proxy=x! resize=u status=u
core podtemplates namespaced cud
core replicationcontrollers namespaced cud scale=u! status=u
core resourcequotas namespaced cud status=u
core secrets namespaced cud
core serviceaccounts namespaced cud token=c!
core services namespaced cud proxy=x! status=u
admissionregistration.k8s.io mutatingadmissionpolicies cluster cud
admissionregistration.k8s.io mutatingadmissionpolicybindings cluster cud
admissionregistration.k8s.io mutatingwebhookconfigurations cluster cud
admissionregistration.k8s.io validatingadmissionpolicies cluster cud status=u
admissionregistration.k8s.io validatingadmissionpolicybindings cluster cud
admissionregistration.k8s.io validatingwebhookconfigurations cluster cud
apiextensions.k8s.io customresourcedefinitions cluster cud status=u
apiregistration.k8s.io apiservices cluster cud status=u
apps controllerrevisions namespaced cud
apps daemonsets namespaced cud status=u
apps deployments namespaced cud scale=u! status=u
apps replicasets namespaced cud scale=u! status=u
apps statefulsets namespaced cud scale=u! status=u
authentication.k8s.io selfsubjectreviews cluster c
authentication.k8s.io tokenreviews cluster c
authorization.k8s.io localsubjectaccessreviews namespaced c
authorization.k8s.io selfsubjectaccessreviews cluster c
authorization.k8s.io selfsubjectrulesreviews cluster c
authorization.k8s.io subjectaccessreviews cluster c
autoscaling horizontalpodautoscalers namespaced cud status=u
batch cronjobs namespaced cud status=u
batch jobs namespaced cud status=u
certificates.k8s.io certificatesigningrequests cluster cud approval=u status=u
certificates.k8s.io clustertrustbundles cluster cud
certificates.k8s.io podcertificaterequests namespaced cud status=u
coordination.k8s.io leasecandidates namespaced cud
coordination.k8s.io leases namespaced cud
discovery.k8s.io endpointslices namespaced cud
events.k8s.io events namespaced cud
flowcontrol.apiserver.k8s.io flowschemas cluster cud status=u
flowcontrol.apiserver.k8s.io prioritylevelconfigurations cluster cud status=u
internal.apiserver.k8s.io storageversions cluster cud status=u
networking.k8s.io ingressclasses cluster cud
networking.k8s.io ingresses namespaced cud status=u
networking.k8s.io ipaddresses cluster cud
networking.k8s.io networkpolicies namespaced cud
networking.k8s.io servicecidrs cluster cud status=u
node.k8s.io runtimeclasses cluster cud
policy poddisruptionbudgets namespaced cud status=u
rbac.authorization.k8s.io clusterrolebindings cluster cud
rbac.authorization.k8s.io clusterroles cluster cud
rbac.authorization.k8s.io rolebindings namespaced cud
rbac.authorization.k8s.io roles namespaced cud
resource.k8s.io deviceclasses cluster cud
resource.k8s.io devicetaintrules cluster cud status=u
resource.k8s.io resourceclaims namespaced cud status=u
resource.k8s.io resourceclaimtemplates namespaced cud
resource.k8s.io resourcepoolstatusrequests cluster cud status=u
resource.k8s.io resourceslices cluster cud
scheduling.k8s.io podgroups namespaced cud status=u
scheduling.k8s.io priorityclasses cluster cud
scheduling.k8s.io workloads namespaced cud
storage.k8s.io csidrivers cluster cud
storage.k8s.io csinodes cluster cud
storage.k8s.io csistoragecapacities namespaced cud
storage.k8s.io storageclasses cluster cud
storage.k8s.io volumeattachments cluster cud status=u
storage.k8s.io volumeattributesclasses cluster cud
storagemigration.k8s.io storageversionmigrations cluster cud status=u

extensions daemonsets namespaced cud status=u
extensions deployments namespaced cud rollback=c! scale=u! status=u
extensions ingresses namespaced cud status=u
extensions networkpolicies namespaced cud
extensions podsecuritypolicies cluster cud
extensions replicasets namespaced cud scale=u! status=u
extensions replicationcontrollers namespaced - scale=u!
extensions thirdpartyresources cluster cud
apps deployments namespaced cud rollback=c!
policy podsecuritypolicies cluster cud
batch scheduledjobs namespaced cud status=u
admissionregistration.k8s.io externaladmissionhookconfigurations cluster cud
admissionregistration.k8s.io initializerconfigurations cluster cud
auditregistration.k8s.io auditsinks cluster cud
networking.k8s.io clustercidrs cluster cud
resource.k8s.io podschedulingcontexts namespaced cud status=u
resource.k8s.io podschedulings namespaced cud status=u
resource.k8s.io resourceclaimparameters namespaced cud
resource.k8s.io resourceclasses cluster cud
resource.k8s.io resourceclassparameters namespaced cud
settings.k8s.io podpresets namespaced cud
`
