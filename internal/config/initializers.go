package config

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// readInitializers is readV1 for an InitializerConfiguration: by the rules of Kubernetes 1.8 but with failurePolicy Fail (spec/2), and
// then as mutating webhooks of v1 say the same.
func readInitializers(c *kinds.InitializerConfiguration, v Validator) (*admissionregistrationv1.MutatingWebhookConfiguration, field.ErrorList) {
	errs, defaults := createMeta(&c.ObjectMeta), defaultsV1()
	v1 := c.Webhooks()
	errs = append(errs, c.ValidateResources()...)
	defaults.set(v1)
	for _, err := range validate(v1, v.Validate) {
		err.Field = initializerField(err.Field)
		errs = append(errs, err)
	}
	return v1, errs
}

// initializerField is the path of a field of a MutatingWebhookConfiguration as the document has it.
func initializerField(path string) string {
	if rest, ok := strings.CutPrefix(path, "webhooks"); ok {
		return kinds.InitializersField + rest
	}
	return path
}

// ClosedAtFirst returns the paths of failurePolicy Fail in a document whose kind lets no hook begin so (spec/2): external admission hooks and
// initializers. A hook of it is created with Ignore, and closed by an update.
func (o *Object) ClosedAtFirst() (fields []string) {
	if !o.Initializes() && !o.IsExternal() {
		return nil
	}
	for i, w := range o.Webhooks() {
		if w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Fail {
			fields = append(fields, fmt.Sprintf("%s[%d].failurePolicy", o.hooksField(), i))
		}
	}
	return fields
}
