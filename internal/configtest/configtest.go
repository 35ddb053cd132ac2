// Package configtest reads the configuration of tests without k8s.io/kubernetes, which doubles the time and memory to link a test. Kubernetes
// refuses all documents that it refuses, and more: tests of refusals use package config/apiserver.
package configtest

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// NewDecoder returns a decoder whose validator is Names.
func NewDecoder() *config.Decoder { return config.NewDecoder(Names{}) }

// Decode reads documents with a decoder of its own.
func Decode(file string, data []byte) ([]config.Object, config.Problems) {
	return NewDecoder().Decode(file, data)
}

// Names is a config.Validator that looks at the names of hooks alone. It has no state.
type Names struct{}

var _ config.Validator = Names{}

// Validate implements config.Validator.
func (Names) Validate(configuration runtime.Object) (errs field.ErrorList) {
	path := field.NewPath("webhooks")
	check := func(i int, name string) {
		errs = append(errs, validation.IsFullyQualifiedName(path.Index(i).Child("name"), name)...)
	}
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			check(i, c.Webhooks[i].Name)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			check(i, c.Webhooks[i].Name)
		}
	}
	return errs
}

// ValidateOlder implements config.Validator.
func (v Names) ValidateOlder(configuration runtime.Object, _ []string) field.ErrorList {
	return v.Validate(configuration)
}
