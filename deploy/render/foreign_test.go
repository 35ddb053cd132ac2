package main

import (
	"slices"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestObjectsOfOtherProjectsAreWhatTheseKnow: the API server of the tests in e2e does not serve their kinds, so their own types say
// which fields there are.
func TestObjectsOfOtherProjectsAreWhatTheseKnow(t *testing.T) {
	rendered, err := render(t, "certificates.certManager.enabled=true", "exampleHost.enabled=true", "serviceMonitor.enabled=true",
		"certificates.certManager.dnsNames={mesh.example.com}", "certificates.certManager.ipAddresses={10.0.0.7}", "serviceMonitor.labels.release=x",
		"prometheusRule.enabled=true", "prometheusRule.labels.release=x")
	if err != nil {
		t.Fatal(err)
	}
	host, err := renderHost(t, hostValues, "certificate.certManager.enabled=true", "certificate.certManager.identity=spiffe://mesh/imagepolicy")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, o := range slices.Concat(rendered.Objects, host.Objects) {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(o.Content), &head); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{
			"cert-manager.io/v1 Certificate":          &certmanagerv1.Certificate{},
			"cert-manager.io/v1 Issuer":               &certmanagerv1.Issuer{},
			"monitoring.coreos.com/v1 ServiceMonitor": &monitoringv1.ServiceMonitor{},
			"monitoring.coreos.com/v1 PrometheusRule": &monitoringv1.PrometheusRule{},
		}[head.APIVersion+" "+head.Kind]
		if into == nil {
			continue
		}
		seen[head.Kind]++
		if err := yaml.UnmarshalStrict([]byte(o.Content), into); err != nil {
			t.Errorf("%s %s: %v", head.Kind, head.Name, err)
		}
	}
	if seen["Certificate"] != 4 || seen["Issuer"] != 2 || seen["ServiceMonitor"] != 1 || seen["PrometheusRule"] != 1 {
		t.Errorf("there are %v", seen)
	}
}
