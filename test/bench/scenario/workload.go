package scenario

import (
	"encoding/json"
	"fmt"
	"strings"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// The defaults of Pods and of webhook configurations.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// Configuration is the name of the webhook configuration.
	Configuration = "bench"
	// Namespace is where the Pod is created.
	Namespace = "shop"
	// Cluster is who sends the reviews.
	Cluster = "bench"
	// podName is the name of a deleted Pod; a created Pod has none yet.
	podName = "web-x7k2p"
	// uid is the uid of all reviews.
	uid = "705ab4f5-6393-11e8-b7cc-42010a800002"
	// containerBytes bounds the size of one container.
	containerBytes = 900
	// image is named by digest, as the policy of the examples wants it.
	image = "registry.example.com/team/app@sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	// hooksPerConfiguration is how many hooks that do not match are in one configuration.
	hooksPerConfiguration = 100
	// customGroups is how many groups of custom resources such hooks ask for.
	customGroups = 250
	// createOptions and deleteOptions are the options of the request.
	createOptions = `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`
	deleteOptions = `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`
)

// User is who creates the Pod.
func User() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: "system:serviceaccount:kube-system:replicaset-controller", UID: "13076e42-1513-11ea-b3fc-02897404852e",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
}

// Pod is a Pod as an API server writes it, with its defaults: as many containers as fit, and an annotation that makes it as
// long as the scenario says.
func (s Scenario) Pod() ([]byte, error) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-", Namespace: Namespace, Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"bench.dev/padding": ""},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "web", Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}},
	}
	for i := range max(1, (s.Bytes-containerBytes)/containerBytes) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(i))
	}
	legacyscheme.Scheme.Default(pod)
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if len(raw) > s.Bytes {
		return nil, fmt.Errorf("scenario: the smallest Pod has %d bytes, not %d", len(raw), s.Bytes)
	}
	pod.Annotations["bench.dev/padding"] = strings.Repeat("x", s.Bytes-len(raw))
	return json.Marshal(pod)
}

// container has the fields that most containers set.
func container(i int) corev1.Container {
	user, yes := int64(1000), true
	return corev1.Container{
		Name: fmt.Sprintf("c%d", i), Image: image,
		Args:  []string{"--listen=:8080", "--log-level=info"},
		Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
		Env: []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("128Mi")},
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
		},
		SecurityContext: &corev1.SecurityContext{RunAsUser: &user, ReadOnlyRootFilesystem: &yes},
	}
}

// Request is the review as a message.
func (s Scenario) Request() (*admissionv1.AdmissionRequest, error) {
	pod, err := s.Pod()
	user := User()
	r := &admissionv1.AdmissionRequest{
		Uid: uid, Cluster: Cluster, Operation: "CREATE", Namespace: Namespace,
		Kind:            &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:        &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		RequestKind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		RequestResource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		UserInfo:        &admissionv1.UserInfo{Username: user.Username, Uid: user.UID, Groups: user.Groups},
		Object:          &admissionv1.Object{Raw: pod},
		Options:         &admissionv1.Object{Raw: []byte(createOptions)},
	}
	if s.Deleting {
		r.Operation, r.Name = "DELETE", podName
		r.Object, r.OldObject, r.Options = nil, r.GetObject(), &admissionv1.Object{Raw: []byte(deleteOptions)}
	}
	return r, err
}

// Review is the review as JSON, as an API server writes it.
func (s Scenario) Review() ([]byte, error) {
	pod, err := s.Pod()
	if err != nil {
		return nil, err
	}
	kind, resource := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	dryRun := false
	r := &k8sadmissionv1.AdmissionRequest{
		UID: uid, Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		Namespace: Namespace, Operation: k8sadmissionv1.Create, UserInfo: User(), DryRun: &dryRun,
		Object: runtime.RawExtension{Raw: pod}, Options: runtime.RawExtension{Raw: []byte(createOptions)},
	}
	if s.Deleting {
		r.Operation, r.Name = k8sadmissionv1.Delete, podName
		r.Object, r.OldObject, r.Options = runtime.RawExtension{}, r.Object, runtime.RawExtension{Raw: []byte(deleteOptions)}
	}
	return json.Marshal(&k8sadmissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Request: r,
	})
}

// Nowhere is the address of hooks that are not webhooks.
func Nowhere(int) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{}
}

// Client says where the webhook of a hook is.
type Client func(hook int) admissionregistrationv1.WebhookClientConfig

// Configurations are the configurations of the hooks of a scenario, with Kubernetes' defaults: [Configuration] with the
// hooks that match, and further ones with hooks that ask for another operation or another resource.
func (s Scenario) Configurations(client Client) (validating []*admissionregistrationv1.ValidatingWebhookConfiguration,
	mutating []*admissionregistrationv1.MutatingWebhookConfiguration,
) {
	add := func(name string, from, to int) {
		if s.Stage == Mutate {
			mutating = append(mutating, s.mutatingConfiguration(name, client, from, to))
			return
		}
		validating = append(validating, s.validatingConfiguration(name, client, from, to))
	}
	add(Configuration, 0, s.Hooks)
	for from := s.Hooks; from < s.Configured; from += hooksPerConfiguration {
		add(fmt.Sprintf("%s-%05d", Configuration, from), from, min(from+hooksPerConfiguration, s.Configured))
	}
	return validating, mutating
}

func (s Scenario) mutatingConfiguration(name string, client Client, from, to int) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	none := admissionregistrationv1.SideEffectClassNone
	for i := from; i < to; i++ {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: s.hook(i), ClientConfig: client(i), Rules: s.rules(i), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	legacyscheme.Scheme.Default(c)
	return c
}

func (s Scenario) validatingConfiguration(name string, client Client, from, to int) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	none := admissionregistrationv1.SideEffectClassNone
	for i := from; i < to; i++ {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: s.hook(i), ClientConfig: client(i), Rules: s.rules(i), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	legacyscheme.Scheme.Default(c)
	return c
}

// rules match the creation of Pods, or their deletion if that is reviewed, for the first hooks; for the others the deletion of Pods, or custom resources.
func (s Scenario) rules(hook int) []admissionregistrationv1.RuleWithOperations {
	operation := admissionregistrationv1.Create
	rule := admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}
	switch {
	case hook < s.Hooks && s.Deleting:
		operation = admissionregistrationv1.Delete
	case hook < s.Hooks:
	case hook%2 == 0:
		operation = admissionregistrationv1.Delete
	default:
		rule.APIGroups = []string{fmt.Sprintf("group-%d.bench.dev", hook/2%customGroups)}
		rule.Resources = []string{"widgets"}
	}
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{operation}, Rule: rule,
	}}
}
