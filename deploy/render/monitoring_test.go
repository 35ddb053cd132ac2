package main

import (
	"encoding/json"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// objectOf decodes the object of a kind and a name that a chart makes.
func objectOf(t *testing.T, r *Rendered, kind, name string, into any) {
	t.Helper()
	for _, o := range r.Objects {
		if strings.Contains(o.Content, "\nkind: "+kind+"\n") && strings.Contains(o.Content, "\n  name: "+name+"\n") {
			if err := yaml.UnmarshalStrict([]byte(o.Content), into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
}

func TestTheRulesWatchTheDispatchersOfTheRelease(t *testing.T) {
	r, err := render(t, "fullnameOverride=mesh", "prometheusRule.enabled=true", "prometheusRule.labels.release=prometheus")
	if err != nil {
		t.Fatal(err)
	}
	var rule monitoringv1.PrometheusRule
	objectOf(t, r, "PrometheusRule", "mesh", &rule)
	if rule.Labels["release"] != "prometheus" {
		t.Errorf("the labels are %v", rule.Labels)
	}
	down := ""
	for _, g := range rule.Spec.Groups {
		for _, alert := range g.Rules {
			if alert.Alert == "PortcullisDispatcherDown" {
				down = alert.Expr.String()
			}
		}
	}
	if down != `up{job="mesh-metrics"} == 0` {
		t.Errorf("the alert on dispatchers that are down is %s", down)
	}
}

func TestDashboardsAreConfigMapsForTheSidecarOfGrafana(t *testing.T) {
	r, err := render(t, "dashboards.enabled=true", "dashboards.annotations.grafana_folder=Mesh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleet", "cluster", "hook", "host"} {
		var config corev1.ConfigMap
		objectOf(t, r, "ConfigMap", "portcullis-dashboard-"+name, &config)
		var dashboard struct {
			UID    string `json:"uid"`
			Panels []any  `json:"panels"`
		}
		if err := json.Unmarshal([]byte(config.Data["portcullis-"+name+".json"]), &dashboard); err != nil {
			t.Error(err)
		}
		if dashboard.UID != "portcullis-"+name || len(dashboard.Panels) == 0 || config.Labels["grafana_dashboard"] != "1" || config.Annotations["grafana_folder"] != "Mesh" {
			t.Errorf("%s has uid %s, %d panels, labels %v and annotations %v", name, dashboard.UID, len(dashboard.Panels), config.Labels, config.Annotations)
		}
	}
}
