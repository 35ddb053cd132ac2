package config

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validator has the rules of Kubernetes about webhook configurations; package apiserver has the original. It is an interface because the
// original links k8s.io/kubernetes, which doubles the time and memory to link a test. It is called concurrently.
//
// A configuration is a pointer to a ValidatingWebhookConfiguration or a MutatingWebhookConfiguration of v1, or to a policy or a binding of v1, that has
// its defaults. The validator may change it.
type Validator interface {
	// Validate returns the rules of v1 that the configuration breaks.
	Validate(configuration runtime.Object) field.ErrorList
	// ValidateOlder returns the rules of the versions before v1 that the configuration breaks. They allow two hooks of one name, unknown side
	// effects, and admissionReviewVersions without a version of today if reviewVersions has none either.
	ValidateOlder(configuration runtime.Object, reviewVersions []string) field.ErrorList
}

// validate asks for the rules that a configuration breaks, but about its matchConditions, which document.conditions looks at. It has its defaults.
func validate(configuration runtime.Object, rules func(runtime.Object) field.ErrorList) field.ErrorList {
	asked := configuration.DeepCopyObject()
	switch c := asked.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			fillStream(&c.Webhooks[i].ClientConfig)
			c.Webhooks[i].MatchConditions = nil
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			fillStream(&c.Webhooks[i].ClientConfig)
			c.Webhooks[i].MatchConditions = nil
		}
	}
	return rules(asked)
}

// older are the rules of versions before v1, with the admissionReviewVersions of that time.
func older(v Validator, reviewVersions ...string) func(runtime.Object) field.ErrorList {
	return func(c runtime.Object) field.ErrorList { return v.ValidateOlder(c, reviewVersions) }
}

// fillStream gives an empty clientConfig, of a hook that is served over streams, an address that passes validation.
func fillStream(c *admissionregistrationv1.WebhookClientConfig) {
	if c.URL == nil && c.Service == nil && len(c.CABundle) == 0 {
		url := streamURL
		c.URL = &url
	}
}
