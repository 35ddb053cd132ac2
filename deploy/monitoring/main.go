// Monitoring writes the Grafana dashboards of Portcullis into the Helm chart. Its tests check them, the alert rules and the table of metrics
// in the documents against the metrics of a mesh that runs. It is a module of its own: the tests need Prometheus' parser and engine.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// chartFiles has the dashboards, and alerts.yaml with the rules.
const chartFiles = "../chart/portcullis/files"

//go:embed dashboards.yaml
var source []byte

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	all, err := dashboards()
	if err != nil {
		return err
	}
	for _, d := range all {
		text, err := d.file()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(chartFiles, "dashboards", d.Name+".json"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// dashboards are all of them.
func dashboards() (all []dashboard, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	decoder.KnownFields(true)
	return all, decoder.Decode(&all)
}
