package registration_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/identity"
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
		"https://mesh:8443/v1/clusters/prod-1/validate":                                "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/admit":                                   "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/enforce/all":                             "prod-1",
		"https://mesh/eu/v1/clusters/prod-1/reinvoke/fail-open?x=y":                    "prod-1",
		"https://mesh:8443/v1/clusters//validate":                                      "",
		"https://mesh:8443/v1/clusters/prod-1":                                         "",
		"https://mesh:8443/v1/clusters/prod-1/nodes":                                   "",
		"https://mesh:8443/v1/clusters/prod-1/validate/fail-open/11.AAAAAAAA":          "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/validate/fail-open/11.AAAAAAAA/now":      "",
		"https://mesh/eu/v1/clusters/prod-1/capability/pcap_A/validate/fail-open/11.A": "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/capability/pcap_A/mutate":                "prod-1",
		"https://mesh:8443/v1/clusters/prod-1/capability/pcap_A":                       "",
		"https://mesh:8443/v1/clusters/prod-1/capability/validate":                     "",
		"https://mesh:8443/validate":                                                   "",
		"https://mesh:8443/%zz":                                                        "",
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

func TestEntriesShowTheCapability(t *testing.T) {
	o := options()
	o.Capability = identity.NewCapability()
	r := plan(t, hooks(t, hook{name: "a", rules: "CREATE::v1:pods"}), o)
	o.Capability = identity.Capability{}
	without := plan(t, hooks(t, hook{name: "a", rules: "CREATE::v1:pods"}), o)
	w, plain := r.Validating.Webhooks[0], without.Validating.Webhooks[0]
	if got := registration.Reviews(&w.ClientConfig); got != "prod-1" {
		t.Errorf("it takes reviews of %q, want prod-1", got)
	}
	secret := r.Validating.Webhooks[0].ClientConfig.URL
	if _, tail, ok := strings.Cut(*secret, "/capability/pcap_"); !ok || strings.Count(tail, "/") != 3 {
		t.Errorf("no capability in %s", *secret)
	}
	head, tail, _ := strings.Cut(*plain.ClientConfig.URL, "/validate/")
	if !strings.HasPrefix(*secret, head+"/capability/") || !strings.HasSuffix(*secret, "/validate/"+tail) {
		t.Errorf("%s differs from %s by more than the capability", *secret, *plain.ClientConfig.URL)
	}
	if w.Name != plain.Name || strings.Contains(fmt.Sprint(r.Findings, o), "pcap_A") {
		t.Errorf("the entry %s is another one than %s", w.Name, plain.Name)
	}
}

func TestTheCapabilityOfAnEntryIsFound(t *testing.T) {
	secret := identity.NewCapability()
	at := func(url string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://mesh/v1/clusters/a/validate/fail-open/1")}},
			{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url)}},
		}}
	}
	if got := (registration.Objects{Validating: at("https://mesh/v1/clusters/a/capability/" + secret.Reveal() + "/validate/fail-closed/1")}).Capability(); got != secret {
		t.Errorf("found %v", got)
	}
	for _, other := range []string{
		"https://mesh/v1/clusters/a/validate/fail-closed/1", "https://mesh/v1/clusters/a/capability/pcap_short/validate/fail-closed/1",
		"https://other/" + secret.Reveal(), "https://mesh/v1/clusters/a/capability/" + secret.Reveal() + "/elsewhere",
	} {
		if got := (registration.Objects{Validating: at(other)}).Capability(); !got.IsZero() {
			t.Errorf("%s: found one", other)
		}
	}
	if got := (registration.Objects{}).Capability(); !got.IsZero() {
		t.Error("found one in no entries")
	}
}
