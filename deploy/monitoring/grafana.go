package main

import (
	"encoding/json"
	"fmt"
)

// schemaVersion is the schema version of Grafana 11. Later versions of Grafana upgrade a dashboard when they load it.
const schemaVersion = 39

// columns is the width of a dashboard, and panelHeight the height of a panel, in Grafana's units.
const (
	columns     = 24
	panelHeight = 8
)

// dashboard is one page of Grafana.
type dashboard struct {
	// Name is the name of its file. Its uid is "portcullis-" and Name.
	Name        string     `yaml:"name"`
	Title       string     `yaml:"title"`
	Description string     `yaml:"description"`
	Variables   []variable `yaml:"variables,omitempty"`
	Rows        []row      `yaml:"rows"`
}

// variable is a choice at the top of a dashboard: the values that the label of this name has in a metric.
type variable struct {
	Name   string `yaml:"name"`
	Title  string `yaml:"title"`
	Metric string `yaml:"metric"`
	// Multi allows several values, and all of them.
	Multi bool `yaml:"multi,omitempty"`
}

// row is a line of panels of the same width.
type row struct {
	Title  string  `yaml:"title"`
	Panels []panel `yaml:"panels"`
}

// panel is one diagram.
type panel struct {
	Title string `yaml:"title"`
	// Kind is the type of a panel in Grafana; empty is "timeseries".
	Kind        string `yaml:"kind,omitempty"`
	Description string `yaml:"description,omitempty"`
	// Unit is a unit of Grafana: s, short, reqps, bytes, percentunit.
	Unit    string  `yaml:"unit"`
	Queries []query `yaml:"queries"`
}

// query is an expression of PromQL. Its legend names labels as Grafana does: {{cluster}}.
type query struct {
	Expr   string `yaml:"expr"`
	Legend string `yaml:"legend"`
}

type object = map[string]any

// file is the dashboard as Grafana imports it.
func (d dashboard) file() ([]byte, error) {
	text, err := json.MarshalIndent(object{
		"uid": "portcullis-" + d.Name, "title": "Portcullis / " + d.Title, "description": d.Description, "tags": []string{"portcullis"},
		"schemaVersion": schemaVersion, "editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
		"time": object{"from": "now-1h", "to": "now"},
		"links": []object{{
			"type": "dashboards", "title": "Portcullis", "tags": []string{"portcullis"},
			"asDropdown": true, "includeVars": true, "keepTime": true,
		}},
		"templating": object{"list": d.templating()}, "panels": d.panels(),
	}, "", "  ")
	return append(text, '\n'), err
}

func (d dashboard) templating() []object {
	list := []object{{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.Variables {
		list = append(list, object{
			"name": v.Name, "label": v.Title, "type": "query", "datasource": datasource(), "refresh": 2, "sort": 1,
			"query":   object{"query": fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Name), "refId": "A"},
			"multi":   v.Multi,
			"current": object{}, "includeAll": v.Multi, "allValue": ".*",
		})
	}
	return list
}

func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (d dashboard) panels() []object {
	var all []object
	y := 0
	add := func(o object, x, width, height int) {
		o["id"], o["gridPos"] = len(all)+1, object{"x": x, "y": y, "w": width, "h": height}
		all = append(all, o)
	}
	for _, r := range d.Rows {
		add(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}}, 0, columns, 1)
		y++
		width := columns / len(r.Panels)
		for i, p := range r.Panels {
			add(p.object(), i*width, width, panelHeight)
		}
		y += panelHeight
	}
	return all
}

func (p panel) object() object {
	var targets []object
	for i, q := range p.Queries {
		t := object{"refId": string(rune('A' + i)), "datasource": datasource(), "expr": q.Expr, "legendFormat": q.Legend}
		targets = append(targets, t)
	}
	o := object{
		"type": p.Kind, "title": p.Title, "description": p.Description, "datasource": datasource(), "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.Unit, "custom": object{}}, "overrides": []object{}},
	}
	switch p.Kind {
	case "":
		o["type"] = "timeseries"
		o["options"] = object{
			"legend":  object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
		o["fieldConfig"].(object)["defaults"].(object)["custom"] = object{"fillOpacity": 8} //nolint:forcetypeassert,errcheck // made above
		for _, t := range targets {
			t["exemplar"] = true
		}
	case "stat":
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "area"}
	}
	return o
}
