package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"
)

// alerts are the rules, as `promtool check rules` reads them.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(chartFiles, "alerts.yaml"), false, model.UTF8Validation,
		parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

const pages = "https://github.com/portcullis-mesh/portcullis/blob/main/docs/"

// TestEachAlertHasARunbook: a section of docs/alerts.md of its name, and no section is of another.
func TestEachAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, names []string
	for _, s := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, s[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if want := pages + "alerts.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity is %s", a.Alert, a.Labels["severity"])
		}
	}
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("alerts (-) and sections (+):\n%s", diff)
	}
}

// ruleTests has the used fields of the format of `promtool test rules`.
type ruleTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string `yaml:"name"`
		InputSeries []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		AlertRuleTest []struct {
			EvalTime  model.Duration `yaml:"eval_time"`
			Alertname string         `yaml:"alertname"`
			ExpAlerts []firing       `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// TestAlertsFireWhenTheyShould runs alerts_test.yaml by Prometheus' own engine. It is a file for `promtool test rules`, which is not built
// here, since it brings the clients of all clouds.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	var file ruleTests
	text, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	rules, tested := map[string]rulefmt.Rule{}, map[string]bool{}
	for _, a := range alerts(t) {
		rules[a.Alert] = a
	}
	interval := time.Duration(file.EvaluationInterval)
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			input := newStorage(t, interval)
			for _, s := range test.InputSeries {
				input.add(s.Series + " " + s.Values)
			}
			for _, c := range test.AlertRuleTest {
				tested[c.Alertname] = tested[c.Alertname] || len(c.ExpAlerts) > 0
				got := fires(t, input, rules[c.Alertname], time.Duration(c.EvalTime), interval)
				if diff := cmp.Diff(c.ExpAlerts, got); diff != "" {
					t.Errorf("%s after %s (-want +got):\n%s", c.Alertname, c.EvalTime, diff)
				}
			}
		})
	}
	for name := range rules {
		if !tested[name] {
			t.Errorf("no test has %s fire", name)
		}
	}
}

// fires evaluates a rule at each interval up to a time, and returns the alerts that fire then.
func fires(t *testing.T, input *storageOfTest, rule rulefmt.Rule, at, interval time.Duration) (firings []firing) {
	t.Helper()
	active := map[string]time.Duration{}
	for now := time.Duration(0); now <= at; now += interval {
		before := active
		active, firings = map[string]time.Duration{}, nil
		for _, s := range input.query(rule.Expr, now) {
			key := s.Metric.String()
			since, ok := before[key]
			if !ok {
				since = now
			}
			if active[key] = since; now-since >= time.Duration(rule.For) {
				firings = append(firings, firingOf(t, rule, s, now))
			}
		}
	}
	slices.SortFunc(firings, func(a, b firing) int { return strings.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels)) })
	return firings
}

// firingOf expands the templates of an alert, as Prometheus does.
func firingOf(t *testing.T, rule rulefmt.Rule, s promql.Sample, now time.Duration) firing {
	t.Helper()
	f := firing{Labels: s.Metric.Map(), Annotations: map[string]string{}}
	delete(f.Labels, model.MetricNameLabel)
	data := template.AlertTemplateData(f.Labels, nil, "", s)
	for name, text := range rule.Annotations {
		expanded, err := template.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}{{$value := .Value}}"+text, rule.Alert, data,
			model.TimeFromUnixNano(int64(now)), nil, nil, nil).Expand()
		if err != nil {
			t.Errorf("%s: %v", rule.Alert, err)
		}
		f.Annotations[name] = expanded
	}
	maps.Copy(f.Labels, rule.Labels)
	return f
}
