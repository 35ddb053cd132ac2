package custom

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// definition is a CustomResourceDefinition as an API server serves it, with strategy None.
func definition(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList",
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
	for i, name := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: i == 0})
	}
	return crd
}

// withWebhook gives a CustomResourceDefinition a conversion webhook.
func withWebhook(crd *apiextensionsv1.CustomResourceDefinition, url string, ca []byte, reviewVersions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca},
			ConversionReviewVersions: reviewVersions,
		},
	}
	return crd
}

func compiled(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *Definition {
	t.Helper()
	d, err := Compile(crd)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// widget is the kind of widgets in a version.
func widget(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
}

// callerFunc is a Caller of one function.
type callerFunc func(review []byte) ([]byte, error)

func (f callerFunc) CallConversion(_ context.Context, _ *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error) {
	return f(review)
}
