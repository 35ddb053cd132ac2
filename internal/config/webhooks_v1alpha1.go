package config

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// externalHooksKind is a kind of admissionregistration.k8s.io/v1alpha1. The other one is kinds.InitializersKind.
const externalHooksKind = "ExternalAdmissionHookConfiguration"

// externalHooksField is the list of hooks in an ExternalAdmissionHookConfiguration.
const externalHooksField = "externalAdmissionHooks"

// v1alpha1Timeout is how long API servers of that time waited for a hook, in seconds. It was not a field.
const v1alpha1Timeout = 30

// externalHooks is the ExternalAdmissionHookConfiguration of Kubernetes 1.7 and 1.8: validating webhooks before they had
// that name.
type externalHooks struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Hooks []externalHook `json:"externalAdmissionHooks"`
}

// externalHook is one hook.
type externalHook struct {
	Name          string                                     `json:"name"`
	ClientConfig  externalClientConfig                       `json:"clientConfig"`
	Rules         []externalRule                             `json:"rules"`
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy"`
}

// externalClientConfig says where a hook is. URLPath came with Kubernetes 1.8.
type externalClientConfig struct {
	Service  externalService `json:"service"`
	URLPath  string          `json:"urlPath"`
	CABundle []byte          `json:"caBundle"`
}

// externalService names a Service.
type externalService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// externalRule is a rule of that time: without a scope.
type externalRule struct {
	Operations  []admissionregistrationv1.OperationType `json:"operations"`
	APIGroups   []string                                `json:"apiGroups"`
	APIVersions []string                                `json:"apiVersions"`
	Resources   []string                                `json:"resources"`
}

// readExternalHooks is readV1 for an ExternalAdmissionHookConfiguration. It validates by the rules of Kubernetes 1.8, which
// are the rules of 1.7 and allow failurePolicy Fail, and then converts to v1. Settings that had no field get the defaults of
// v1beta1.
//
// Kubernetes called the name and namespace of the Service required and did not look. Here they are looked for.
func readExternalHooks(c *externalHooks, v Validator) (*admissionregistrationv1.ValidatingWebhookConfiguration, field.ErrorList) {
	errs, defaults := createMeta(&c.ObjectMeta), defaultsV1()
	v1 := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: validatingKind},
		ObjectMeta: c.ObjectMeta,
	}
	for _, hook := range c.Hooks {
		v1.Webhooks = append(v1.Webhooks, hook.webhook())
	}
	defaults.set(v1)
	for _, err := range validate(v1, older(v, "v1alpha1")) {
		err.Field = externalField(err.Field)
		errs = append(errs, err)
	}
	return v1, errs
}

// webhook converts the hook to v1; fields whose default in v1 is the same are left out.
func (h *externalHook) webhook() admissionregistrationv1.ValidatingWebhook {
	failurePolicy, matchPolicy := admissionregistrationv1.Ignore, admissionregistrationv1.Exact
	if h.FailurePolicy != nil {
		failurePolicy = *h.FailurePolicy
	}
	sideEffects, timeout := admissionregistrationv1.SideEffectClassUnknown, int32(v1alpha1Timeout)
	w := admissionregistrationv1.ValidatingWebhook{
		Name: h.Name, ClientConfig: h.ClientConfig.client(),
		FailurePolicy: &failurePolicy, MatchPolicy: &matchPolicy, SideEffects: &sideEffects, TimeoutSeconds: &timeout,
		AdmissionReviewVersions: []string{"v1alpha1"},
	}
	for _, r := range h.Rules {
		w.Rules = append(w.Rules, admissionregistrationv1.RuleWithOperations{
			Operations: r.Operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources},
		})
	}
	return w
}

// client converts the clientConfig to v1; an empty one stays empty, for a hook that streams serve.
func (c *externalClientConfig) client() admissionregistrationv1.WebhookClientConfig {
	if c.Service == (externalService{}) && c.URLPath == "" && len(c.CABundle) == 0 {
		return admissionregistrationv1.WebhookClientConfig{}
	}
	service := &admissionregistrationv1.ServiceReference{Namespace: c.Service.Namespace, Name: c.Service.Name}
	if c.URLPath != "" {
		service.Path = &c.URLPath
	}
	return admissionregistrationv1.WebhookClientConfig{Service: service, CABundle: c.CABundle}
}

// externalField is the path of a field of a ValidatingWebhookConfiguration as the document has it.
func externalField(path string) string {
	rest, ok := strings.CutPrefix(path, "webhooks")
	if !ok {
		return path
	}
	if hook, ok := strings.CutSuffix(rest, ".clientConfig.service.path"); ok {
		rest = hook + ".clientConfig.urlPath"
	}
	return externalHooksField + rest
}
