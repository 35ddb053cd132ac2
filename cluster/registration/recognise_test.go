package registration_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cluster/registration"
)

func TestARegistrationIsRecognised(t *testing.T) {
	o := options()
	o.URL += "/eu/"
	r := plan(t, hooks(t, hook{name: "a", rules: "CREATE::v1:pods"}, hook{name: "b", policy: "Ignore", rules: "CREATE::v1:pods"}), o)
	for _, m := range []*metav1.ObjectMeta{&r.Mutating.ObjectMeta, &r.Validating.ObjectMeta} {
		if cluster, ok := registration.MadeFor(m); !ok || cluster != "prod-1" {
			t.Errorf("%v was made for %q (%t), want prod-1", m, cluster, ok)
		}
	}
	if len(r.Validating.Webhooks) != 2 {
		t.Fatalf("%d entries, want 2", len(r.Validating.Webhooks))
	}
	for _, w := range r.Validating.Webhooks {
		if got := registration.Reviews(&w.ClientConfig); got != "prod-1" {
			t.Errorf("%s takes reviews of %q, want prod-1", *w.ClientConfig.URL, got)
		}
	}
}

func TestOtherObjectsAreNotTakenForARegistration(t *testing.T) {
	m := &metav1.ObjectMeta{Name: registration.DefaultName, Labels: map[string]string{"app.kubernetes.io/managed-by": "portcullis"}}
	if cluster, ok := registration.MadeFor(m); ok {
		t.Errorf("an object with our name and label was made for %q", cluster)
	}
}

func TestAddressesOfABridgeAreRecognised(t *testing.T) {
	for address, want := range map[string]string{
		"https://mesh:8443/v1/clusters/prod-1/validate":                           "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/admit":                              "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/enforce/all":                        "prod-1",
		"https://mesh/eu/v1/clusters/prod-1/reinvoke/fail-open?x=y":               "prod-1",
		"https://mesh:8443/v1/clusters//validate":                                 "",
		"https://mesh:8443/v1/clusters/prod-1":                                    "",
		"https://mesh:8443/v1/clusters/prod-1/nodes":                              "",
		"https://mesh:8443/v1/clusters/prod-1/validate/fail-open/11.AAAAAAAA":     "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/validate/fail-open/11.AAAAAAAA/now": "",
		"https://mesh:8443/validate":                                              "",
		"https://mesh:8443/%zz":                                                   "",
	} {
		if got := registration.Reviews(&admissionregistrationv1.WebhookClientConfig{URL: &address}); got != want {
			t.Errorf("%s takes reviews of %q, want %q", address, got, want)
		}
	}
	path := "/v1/clusters/prod-1/mutate/fail-closed"
	for want, service := range map[string]*admissionregistrationv1.ServiceReference{"prod-1": {Path: &path}, "": {}} {
		if got := registration.Reviews(&admissionregistrationv1.WebhookClientConfig{Service: service}); got != want {
			t.Errorf("service %v takes reviews of %q, want %q", service, got, want)
		}
	}
	if got := registration.Reviews(&admissionregistrationv1.WebhookClientConfig{}); got != "" {
		t.Errorf("no address takes reviews of %q", got)
	}
}
