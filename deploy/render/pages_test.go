package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var (
	objectName = regexp.MustCompile(`\bportcullis(?:-[a-z]+)+\b`)
	codeSpan   = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?::[^`]*)?`")
)

// otherNames begin like names of objects, and name something else.
var otherNames = []string{
	"portcullis-mesh",      // in addresses of the repository
	"portcullis-system",    // the namespace
	"portcullis-config",    // the ConfigMap that users of the plain manifests make
	"portcullis-admission", // a user agent
	"portcullis-access",    // the service account that `cluster join` makes
	"portcullis-params",    // the ClusterRole that users make to let policies read params
	"portcullis-follow",    // a field manager, and a Lease
	"portcullis-entries",   // the Lease of the dispatcher that keeps entries
	"portcullis-dev",       // a service of traces, and a directory
	"portcullis-review",    // a service of traces
	"portcullis-audit",     // a user, and reports of policies
	"portcullis-host",      // a chart
}

// pages are those that tell of the chart by its names.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, file := range append(files, "../README.md", "../../README.md", "../../docs/design/0026-install.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[file] = string(text)
	}
	return pages
}

// TestPagesNameWhatTheChartMakes: no page has a name of an object that is not there, or that the chart does not mount.
func TestPagesNameWhatTheChartMakes(t *testing.T) {
	rendered, err := render(t, "certificates.certManager.enabled=true", "exampleHost.enabled=true", "serviceMonitor.enabled=true",
		"configuration.customResources=true")
	if err != nil {
		t.Fatal(err)
	}
	bridge, err := renderBridge(t, bridgeValues)
	if err != nil {
		t.Fatal(err)
	}
	self, err := render(t, "certificates.self.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Clone(otherNames)
	for _, o := range slices.Concat(rendered.Objects, bridge.Objects, self.Objects) {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(o.Content), &head); err != nil {
			t.Fatal(err)
		}
		known = append(known, head.Name)
		for _, line := range strings.Split(o.Content, "\n") { // Secrets and images
			if strings.Contains(line, "secretName:") || strings.Contains(line, "image:") {
				known = append(known, objectName.FindAllString(line, -1)...)
			}
		}
	}
	for page, text := range pages(t) {
		for _, name := range objectName.FindAllString(text, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s: the chart makes no such object", page, name)
			}
		}
	}
}

// TestPagesNameValuesThatThereAre: values.yaml has each value that pages name.
func TestPagesNameValuesThatThereAre(t *testing.T) {
	all := pages(t)
	for page, chart := range map[string]string{
		"install": chartDir, "upgrade": chartDir, "certificates": chartDir, "design/0026-install": chartDir, "hosts": hostDir,
	} {
		values, found := yamlOf(t, chart, "values.yaml"), 0
		for _, span := range codeSpan.FindAllStringSubmatch(all["../../docs/"+page+".md"], -1) {
			path := strings.Split(span[1], ".")
			if _, isValue := values[path[0]]; !isValue {
				continue // of a document
			}
			found++
			if !has(values, path) {
				t.Errorf("docs/%s.md names the value %s, which values.yaml of %s does not have", page, span[1], chart)
			}
		}
		if found == 0 {
			t.Errorf("docs/%s.md names no value", page)
		}
	}
}

// yamlOf is a file with a mapping.
func yamlOf(t *testing.T, path ...string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func has(values map[string]any, path []string) bool {
	value, exists := values[path[0]]
	if len(path) == 1 || !exists {
		return exists
	}
	inner, isMap := value.(map[string]any)
	return isMap && has(inner, path[1:])
}

// TestTheSchemaHasEachValueAndNoOther: values.yaml is the list that people read.
func TestTheSchemaHasEachValueAndNoOther(t *testing.T) {
	for _, dir := range []string{chartDir, bridgeDir, hostDir} {
		compare(t, "", yamlOf(t, dir, "values.yaml"), yamlOf(t, dir, "values.schema.json"))
	}
}

// compare compares values with the properties of their schema. Helm's own `global`, and objects of Kubernetes, have no schema here.
func compare(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return
	}
	for name, value := range values {
		property, exists := properties[name].(map[string]any)
		if !exists {
			t.Errorf("the schema does not have %s%s", path, name)
			continue
		}
		if inner, isMap := value.(map[string]any); isMap {
			compare(t, path+name+".", inner, property)
		}
	}
	for name := range properties {
		if _, exists := values[name]; !exists && path+name != "global" && path != "resources." && path != "exampleHost.resources." {
			t.Errorf("values.yaml does not have %s%s", path, name)
		}
	}
}
