package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// targetLabels are the labels that Prometheus adds to each series, and le, the label of buckets.
var targetLabels = []string{"job", "instance", "namespace", "pod", "le", model.MetricNameLabel}

// atTimes are metrics without series most of the time, with their labels, and when they have some.
var atTimes = map[string]struct {
	labels []string
	when   string
}{
	"portcullis_cluster_context_confirmed_timestamp_seconds": {[]string{"cluster", "part"}, "an API server has answered"},
	"portcullis_configuration_superseded_timestamp_seconds":  {nil, "a newer configuration is being compiled"},
	"portcullis_followed_objects":                            {[]string{"cluster", "state"}, "an API server has answered"},
	"portcullis_initializer_held_reviews":                    {[]string{"cluster"}, "CREATE requests are held for their initializers"},
	"portcullis_memory_cluster_used_bytes":                   {[]string{"cluster"}, "reviews are in flight"},
	"portcullis_recorded_reviews_total":                      {[]string{"result"}, "serve has --record"},
	"portcullis_staged_objects":                              {[]string{"cluster"}, "CREATE requests are held for their initializers"},
	"portcullis_staged_objects_unbooked":                     {[]string{"cluster"}, "a cluster has more objects staged than its share of the memory"},
	"portcullis_staged_written_bytes":                        {[]string{"cluster"}, "staged objects were written within the retention"},
}

// known are the labels of all metrics with their values, by the names of their series.
type known map[string]map[string][]string

func knownOf(families map[string]*dto.MetricFamily) known {
	k := known{"up": {}}
	for name, f := range families {
		of := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				of[l.GetName()] = append(of[l.GetName()], l.GetValue())
			}
		}
		k[name] = of
		if f.GetType() == dto.MetricType_HISTOGRAM {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				k[name+suffix] = of
			}
		}
	}
	for name, m := range atTimes {
		k[name] = map[string][]string{}
		for _, l := range m.labels {
			k[name][l] = nil
		}
	}
	return k
}

// check returns an error for each metric, label and value in an expression that no metric has.
func (k known) check(expr parser.Expr) (errs []error) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if k[n.Name] == nil {
				errs = append(errs, fmt.Errorf("there is no metric %s", n.Name))
			}
			for _, m := range n.LabelMatchers {
				errs = append(errs, k.has([]string{n.Name}, m.Name)...)
				if values := k[n.Name][m.Name]; len(values) > 0 && !slices.ContainsFunc(values, m.Matches) {
					errs = append(errs, fmt.Errorf("no series of %s has %s: %v", n.Name, m, values))
				}
			}
		case *parser.AggregateExpr:
			for _, l := range n.Grouping {
				errs = append(errs, k.has(selected(n), l)...)
			}
		}
		return nil
	})
	return errs
}

// has returns an error if no metric of names has a label.
func (k known) has(names []string, label string) []error {
	if slices.Contains(targetLabels, label) {
		return nil
	}
	for _, name := range names {
		if _, ok := k[name][label]; ok {
			return nil
		}
	}
	return []error{fmt.Errorf("none of %v has the label %s", names, label)}
}

// selected are the metrics that an expression selects.
func selected(expr parser.Node) (names []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names
}

// TestEverythingThatWatchesAMeshFitsIt runs one mesh for all that has to fit its metrics.
func TestEverythingThatWatchesAMeshFitsIt(t *testing.T) {
	mesh := start(t)
	text, families := mesh.scrape()
	k := knownOf(families)
	t.Run("promlint finds nothing", func(t *testing.T) {
		problems, err := promlint.New(bytes.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
	t.Run("rules", func(t *testing.T) {
		for _, alert := range alerts(t) {
			for _, err := range k.check(parse(t, alert.Expr)) {
				t.Errorf("%s: %v", alert.Alert, err)
			}
		}
	})
	t.Run("dashboards", func(t *testing.T) { k.checkDashboards(t) })
	t.Run("docs/metrics.md names each metric and no other", func(t *testing.T) { checkDocument(t, families) })
	mesh.eventually("no metric of atTimes has series", func() error { // a call in shadow may outlast its review
		_, families := mesh.scrape()
		for name, m := range atTimes {
			if families[name] != nil {
				return fmt.Errorf("%s has series also before %s: take it off atTimes", name, m.when)
			}
		}
		return nil
	})
}

func parse(t *testing.T, text string) parser.Expr {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return expr
}

var (
	labelValues = regexp.MustCompile(`^label_values\(([a-z0-9_]+), ([a-z]+)\)$`)
	legendLabel = regexp.MustCompile(`{{(\w+)}}`)
	grafanaName = regexp.MustCompile(`\$(\w+)`)
)

// checkDashboards checks the queries of the files that are published.
func (k known) checkDashboards(t *testing.T) {
	all, err := dashboards()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		var file struct {
			Templating struct {
				List []struct {
					Name  string          `json:"name"`
					Query json.RawMessage `json:"query"`
				} `json:"list"`
			} `json:"templating"`
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					Expr   string `json:"expr"`
					Legend string `json:"legendFormat"`
				} `json:"targets"`
			} `json:"panels"`
		}
		text, err := os.ReadFile(filepath.Join(chartFiles, "dashboards", d.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := d.file(); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%s.json is not what dashboards.yaml makes (error %v): run `make dashboards`", d.Name, err)
		}
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		variables := map[string]string{"__rate_interval": "5m"}
		for _, v := range file.Templating.List[1:] {
			var query struct {
				Query string `json:"query"`
			}
			if err := json.Unmarshal(v.Query, &query); err != nil {
				t.Fatal(err)
			}
			found := labelValues.FindStringSubmatch(query.Query)
			if found == nil || k[found[1]][found[2]] == nil {
				t.Errorf("%s: the variable %s asks for %s, which no metric has", d.Name, v.Name, query.Query)
			}
			variables[v.Name] = ".*"
		}
		for _, p := range file.Panels {
			for _, q := range p.Targets {
				expr := parse(t, grafanaName.ReplaceAllStringFunc(q.Expr, func(name string) string {
					if variables[name[1:]] == "" {
						t.Errorf("%s, %s: there is no variable %s", d.Name, p.Title, name)
					}
					return variables[name[1:]]
				}))
				errs := k.check(expr)
				for _, l := range legendLabel.FindAllStringSubmatch(q.Legend, -1) {
					errs = append(errs, k.has(selected(expr), l[1])...)
				}
				for _, err := range errs {
					t.Errorf("%s, %s: %v", d.Name, p.Title, err)
				}
			}
		}
	}
}

// span is code in a document: a metric, perhaps with its labels.
var span = regexp.MustCompile("`(portcullis_[a-z0-9_]+)[{`]")

// checkDocument compares the metrics that the section Metrics of docs/metrics.md names with those that there are.
func checkDocument(t *testing.T, families map[string]*dto.MetricFamily) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## Outcomes\n")
	named := map[string]bool{}
	for _, s := range span.FindAllStringSubmatch(section, -1) {
		named[s[1]] = true
	}
	for name := range families {
		if strings.HasPrefix(name, "portcullis_") && !named[name] {
			t.Errorf("there is no word on %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if strings.HasPrefix(name, "portcullis_adapt_") {
			continue // of `portcullis adapt`, which no mesh runs: cmd/portcullis/internal/adapt has the test of its metrics
		}
		if _, sometimes := atTimes[name]; families[name] == nil && !sometimes && !strings.HasSuffix(name, "_") {
			t.Errorf("the mesh has no metric %s", name)
		}
	}
}

func TestNamesThatNoMetricHasAreFound(t *testing.T) {
	k := known{"up": {}, "calls_total": {"name": {"a"}}}
	for text, want := range map[string]string{
		`sum by (name) (rate(calls_total{name="a"}[5m]))`: "",
		`calls_total{name!="b", job="x"}`:                 "",
		`rate(call_total[5m])`:                            "there is no metric call_total",
		`up + calls_total{host="x"}`:                      "none of [calls_total] has the label host",
		`sum by (host) (calls_total)`:                     "none of [calls_total] has the label host",
		`calls_total{name="b"}`:                           "no series of calls_total has name=\"b\": [a]",
	} {
		got := ""
		for _, err := range k.check(parse(t, text)) {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
