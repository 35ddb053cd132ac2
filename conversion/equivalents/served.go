package equivalents

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Served returns the resources that an API server with these group versions considers equivalent, for a cluster without discovery; Discovered is more
// exact. The versions of a group come in the order of the API server's discovery. All that Kubernetes has served in a group version counts, in
// whatever release: policy/v1beta1 has PodSecurityPolicies, networking.k8s.io/v1beta1 has Ingresses. Only resources that were ever served in more
// than one way are known.
func Served(versions []schema.GroupVersion) *Builtin {
	lists := make([]*metav1.APIResourceList, 0, len(versions))
	for _, gv := range versions {
		lists = append(lists, listed(gv))
	}
	return Discovered(lists)
}

// Known returns the equivalent resources for an unknown cluster: all the ways in which Kubernetes has ever served a built-in resource. No API server
// serves them all. So a hook may match that the cluster's own API server would not call, and it may take a version that our types cannot convert to.
// But no hook is passed over.
func Known() *Builtin {
	var all []schema.GroupVersion
	for line := range strings.Lines(served) {
		columns := strings.Split(line, "|")
		if len(columns) < 3 {
			continue
		}
		for _, text := range expand(columns[2]) {
			if gv, err := schema.ParseGroupVersion(text); err == nil && !slices.Contains(all, gv) {
				all = append(all, gv)
			}
		}
	}
	// As discovery lists versions, whatever the order of the lines.
	slices.SortStableFunc(all, func(a, b schema.GroupVersion) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return Served(all)
}

// listed is the discovery document of a group version.
func listed(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for line := range strings.Lines(served) {
		columns := strings.Split(line, "|")
		if len(columns) < 3 || !slices.Contains(expand(columns[2]), list.GroupVersion) {
			continue
		}
		kind := strings.TrimSpace(columns[1])
		for _, path := range strings.Fields(columns[0]) {
			r := metav1.APIResource{Name: path, Kind: kind}
			if kind == "Scale" && !hasOwnScale(list.GroupVersion) {
				r.Group, r.Version = "autoscaling", "v1"
			}
			list.APIResources = append(list.APIResources, r)
		}
	}
	return list
}

// expand makes "apps/v1,v1beta1 v1" into apps/v1, apps/v1beta1 and v1.
func expand(column string) []string {
	var versions []string
	for _, field := range strings.Fields(column) {
		group, list, named := strings.Cut(field, "/")
		if !named {
			group, list = "", field
		}
		for version := range strings.SplitSeq(list, ",") {
			versions = append(versions, schema.GroupVersion{Group: group, Version: version}.String())
		}
	}
	return versions
}

// hasOwnScale reports whether a group version has a Scale of its own; the others use the Scale of autoscaling/v1.
func hasOwnScale(gv string) bool {
	return gv == "extensions/v1beta1" || gv == "apps/v1beta1" || gv == "apps/v1beta2"
}

// served are the resources that Kubernetes has served in several ways since it has webhooks: paths, kind, group versions.
const served = `
deployments deployments/status | Deployment | apps/v1,v1beta2,v1beta1 extensions/v1beta1
deployments/scale | Scale | apps/v1,v1beta2,v1beta1 extensions/v1beta1
deployments/rollback | DeploymentRollback | apps/v1beta1 extensions/v1beta1
daemonsets daemonsets/status | DaemonSet | apps/v1,v1beta2 extensions/v1beta1
replicasets replicasets/status | ReplicaSet | apps/v1,v1beta2 extensions/v1beta1
replicasets/scale | Scale | apps/v1,v1beta2 extensions/v1beta1
statefulsets statefulsets/status | StatefulSet | apps/v1,v1beta2,v1beta1
statefulsets/scale | Scale | apps/v1,v1beta2,v1beta1
controllerrevisions | ControllerRevision | apps/v1,v1beta2,v1beta1
replicationcontrollers | ReplicationController | v1
replicationcontrollers | ReplicationControllerDummy | extensions/v1beta1
replicationcontrollers/scale | Scale | v1 extensions/v1beta1
events | Event | v1 events.k8s.io/v1,v1beta1
ingresses ingresses/status | Ingress | networking.k8s.io/v1,v1beta1 extensions/v1beta1
ingressclasses | IngressClass | networking.k8s.io/v1,v1beta1
networkpolicies | NetworkPolicy | networking.k8s.io/v1 extensions/v1beta1
ipaddresses | IPAddress | networking.k8s.io/v1,v1beta1,v1alpha1
servicecidrs servicecidrs/status | ServiceCIDR | networking.k8s.io/v1,v1beta1,v1alpha1
podsecuritypolicies | PodSecurityPolicy | policy/v1beta1 extensions/v1beta1
poddisruptionbudgets poddisruptionbudgets/status | PodDisruptionBudget | policy/v1,v1beta1
horizontalpodautoscalers horizontalpodautoscalers/status | HorizontalPodAutoscaler | autoscaling/v2,v1,v2beta1,v2beta2
cronjobs cronjobs/status | CronJob | batch/v1,v1beta1,v2alpha1
certificatesigningrequests certificatesigningrequests/approval | CertificateSigningRequest | certificates.k8s.io/v1,v1beta1
certificatesigningrequests/status | CertificateSigningRequest | certificates.k8s.io/v1,v1beta1
clustertrustbundles | ClusterTrustBundle | certificates.k8s.io/v1beta1,v1alpha1
podcertificaterequests podcertificaterequests/status | PodCertificateRequest | certificates.k8s.io/v1beta1,v1alpha1
leases | Lease | coordination.k8s.io/v1,v1beta1
leasecandidates | LeaseCandidate | coordination.k8s.io/v1beta1,v1alpha2,v1alpha1
endpointslices | EndpointSlice | discovery.k8s.io/v1,v1beta1,v1alpha1
flowschemas flowschemas/status | FlowSchema | flowcontrol.apiserver.k8s.io/v1,v1beta3,v1beta2,v1beta1,v1alpha1
prioritylevelconfigurations | PriorityLevelConfiguration | flowcontrol.apiserver.k8s.io/v1,v1beta3,v1beta2,v1beta1,v1alpha1
prioritylevelconfigurations/status | PriorityLevelConfiguration | flowcontrol.apiserver.k8s.io/v1,v1beta3,v1beta2,v1beta1,v1alpha1
runtimeclasses | RuntimeClass | node.k8s.io/v1,v1beta1,v1alpha1
roles | Role | rbac.authorization.k8s.io/v1,v1beta1,v1alpha1
rolebindings | RoleBinding | rbac.authorization.k8s.io/v1,v1beta1,v1alpha1
clusterroles | ClusterRole | rbac.authorization.k8s.io/v1,v1beta1,v1alpha1
clusterrolebindings | ClusterRoleBinding | rbac.authorization.k8s.io/v1,v1beta1,v1alpha1
priorityclasses | PriorityClass | scheduling.k8s.io/v1,v1beta1,v1alpha1
storageclasses | StorageClass | storage.k8s.io/v1,v1beta1
csidrivers | CSIDriver | storage.k8s.io/v1,v1beta1
csinodes | CSINode | storage.k8s.io/v1,v1beta1
csistoragecapacities | CSIStorageCapacity | storage.k8s.io/v1,v1beta1,v1alpha1
volumeattachments | VolumeAttachment | storage.k8s.io/v1,v1beta1,v1alpha1
volumeattributesclasses | VolumeAttributesClass | storage.k8s.io/v1,v1beta1,v1alpha1
storageversionmigrations storageversionmigrations/status | StorageVersionMigration | storagemigration.k8s.io/v1beta1,v1alpha1
deviceclasses | DeviceClass | resource.k8s.io/v1,v1beta2,v1beta1,v1alpha3
resourceclaims resourceclaims/status | ResourceClaim | resource.k8s.io/v1,v1beta2,v1beta1,v1alpha3
resourceclaimtemplates | ResourceClaimTemplate | resource.k8s.io/v1,v1beta2,v1beta1,v1alpha3
resourceslices | ResourceSlice | resource.k8s.io/v1,v1beta2,v1beta1,v1alpha3
devicetaintrules devicetaintrules/status | DeviceTaintRule | resource.k8s.io/v1beta2,v1alpha3
mutatingadmissionpolicies | MutatingAdmissionPolicy | admissionregistration.k8s.io/v1,v1beta1,v1alpha1
mutatingadmissionpolicybindings | MutatingAdmissionPolicyBinding | admissionregistration.k8s.io/v1,v1beta1,v1alpha1
validatingadmissionpolicies | ValidatingAdmissionPolicy | admissionregistration.k8s.io/v1,v1beta1,v1alpha1
validatingadmissionpolicies/status | ValidatingAdmissionPolicy | admissionregistration.k8s.io/v1,v1beta1,v1alpha1
validatingadmissionpolicybindings | ValidatingAdmissionPolicyBinding | admissionregistration.k8s.io/v1,v1beta1,v1alpha1
mutatingwebhookconfigurations | MutatingWebhookConfiguration | admissionregistration.k8s.io/v1,v1beta1
validatingwebhookconfigurations | ValidatingWebhookConfiguration | admissionregistration.k8s.io/v1,v1beta1
tokenreviews | TokenReview | authentication.k8s.io/v1,v1beta1
selfsubjectreviews | SelfSubjectReview | authentication.k8s.io/v1,v1beta1,v1alpha1
localsubjectaccessreviews | LocalSubjectAccessReview | authorization.k8s.io/v1,v1beta1
selfsubjectaccessreviews | SelfSubjectAccessReview | authorization.k8s.io/v1,v1beta1
selfsubjectrulesreviews | SelfSubjectRulesReview | authorization.k8s.io/v1,v1beta1
subjectaccessreviews | SubjectAccessReview | authorization.k8s.io/v1,v1beta1
customresourcedefinitions customresourcedefinitions/status | CustomResourceDefinition | apiextensions.k8s.io/v1,v1beta1
apiservices apiservices/status | APIService | apiregistration.k8s.io/v1,v1beta1
`
