package custom

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Caller calls the conversion webhooks of one cluster.
type Caller interface {
	// CallConversion sends the JSON of a ConversionReview to the webhook that a clientConfig describes, and returns the
	// body of the answer if its HTTP status is a success. ctx bounds the call, and so does the caller, in time and in the
	// length of the answer. Neither argument is changed or kept. It may be called concurrently.
	CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, review []byte) (answer []byte, err error)
}

// The subresources that a custom resource can have.
const (
	subresourceStatus = "status"
	subresourceScale  = "scale"
)

// Definition holds the versions of a CustomResourceDefinition. It never changes and may be used concurrently.
type Definition struct {
	name     string // of the CustomResourceDefinition
	group    string
	plural   string
	kind     string
	versions map[string]bool
	ways     map[string][]conversion.ResourceKind // by subresource
	defaults map[string]*structural.Structural    // by version; none where a schema has none
	merge    map[string]*mergeSchema              // by version
	webhook  *webhook                             // nil with strategy None
}

// webhook is a conversion webhook.
type webhook struct {
	client  *apiextensionsv1.WebhookClientConfig
	version string // of the ConversionReview, in full; empty when the webhook takes none that is spoken here
}

// Compile reads a CustomResourceDefinition, which is not changed or kept. It need not be defaulted: no conversion means strategy None. Without
// accepted names (in a file, say) the names of the specification count. Of the schemas only the defaults and the shape are kept.
//
// The error is a reason for which an API server could not serve the resource either.
func Compile(crd *apiextensionsv1.CustomResourceDefinition) (*Definition, error) {
	d, err := compile(crd)
	if err != nil {
		return nil, fmt.Errorf("CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return d, nil
}

func compile(crd *apiextensionsv1.CustomResourceDefinition) (*Definition, error) {
	names := &crd.Status.AcceptedNames
	if names.Plural == "" || names.Kind == "" {
		names = &crd.Spec.Names
	}
	d := &Definition{
		name: crd.Name, group: crd.Spec.Group, plural: names.Plural, kind: names.Kind,
		versions: map[string]bool{}, ways: map[string][]conversion.ResourceKind{}, defaults: map[string]*structural.Structural{},
		merge: map[string]*mergeSchema{},
	}
	if d.group == "" || d.plural == "" || d.kind == "" {
		return nil, errors.New("its group, its plural or its kind is empty")
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if err := d.add(v); err != nil {
			return nil, err
		}
		defaults, err := defaultsOf(v, crd.Spec.PreserveUnknownFields)
		if err != nil {
			return nil, fmt.Errorf("the schema of version %s: %w", v.Name, err)
		}
		if defaults != nil {
			d.defaults[v.Name] = defaults
		}
		if d.merge[v.Name], err = mergeSchemaOf(v); err != nil {
			return nil, fmt.Errorf("the schema of version %s: %w", v.Name, err)
		}
	}
	if len(d.versions) == 0 {
		return nil, errors.New("it has no version")
	}
	var err error
	d.webhook, err = webhookOf(crd.Spec.Conversion)
	return d, err
}

// add takes a version in, as crdHandler.getOrCreateServingInfoFor registers it (customresource_handler.go): versions that
// are not served count too.
func (d *Definition) add(v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	if v.Name == "" || d.versions[v.Name] {
		return fmt.Errorf("version %q is there twice, or has no name", v.Name)
	}
	d.versions[v.Name] = true
	gv := schema.GroupVersion{Group: d.group, Version: v.Name}
	register := func(subresource string, kind schema.GroupVersionKind) {
		way := conversion.ResourceKind{Resource: gv.WithResource(d.plural), Subresource: subresource, Kind: kind}
		d.ways[subresource] = append(d.ways[subresource], way)
	}
	register("", gv.WithKind(d.kind))
	if v.Subresources == nil {
		return nil
	}
	if v.Subresources.Status != nil {
		register(subresourceStatus, gv.WithKind(d.kind))
	}
	if v.Subresources.Scale != nil {
		register(subresourceScale, scaleKind())
	}
	return nil
}

// webhookOf reads the conversion of a CustomResourceDefinition; nil is strategy None.
func webhookOf(c *apiextensionsv1.CustomResourceConversion) (*webhook, error) {
	switch {
	case c == nil, c.Strategy == "", c.Strategy == apiextensionsv1.NoneConverter:
		return nil, nil //nolint:nilnil // strategy None, as documented
	case c.Strategy != apiextensionsv1.WebhookConverter:
		return nil, fmt.Errorf("unknown conversion strategy %q: want None or Webhook", c.Strategy)
	case c.Webhook == nil || c.Webhook.ClientConfig == nil:
		return nil, errors.New("its conversion has strategy Webhook, and no webhook.clientConfig")
	}
	w := &webhook{client: c.Webhook.ClientConfig.DeepCopy(), version: negotiate(c.Webhook.ConversionReviewVersions)}
	if w.client.Service == nil && (w.client.URL == nil || *w.client.URL == "") {
		return nil, errors.New("its conversion webhook has neither url nor service in its clientConfig")
	}
	if len(bytes.TrimSpace(w.client.CABundle)) == 0 {
		w.client.CABundle = nil // White space is no bundle (webhookClientConfigForCRD of webhook_converter.go).
	}
	return w, nil
}

func scaleKind() schema.GroupVersionKind { return autoscalingv1.SchemeGroupVersion.WithKind("Scale") }

// Group is the API group.
func (d *Definition) Group() string { return d.group }

// Plural is the name of the resource.
func (d *Definition) Plural() string { return d.plural }

// Kind is the kind of the objects.
func (d *Definition) Kind() string { return d.kind }

// Equivalents returns the ways to reach the resource or a subresource. The API server tries them in the same order: by spec.versions, served or not
// (SEMANTICS C13). It is empty for a subresource that no version has. The slice must not be changed.
func (d *Definition) Equivalents(subresource string) []conversion.ResourceKind {
	return d.ways[subresource]
}
