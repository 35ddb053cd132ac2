package config

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// IsCaseFile reports whether a file has cases of policies, by its name: cases.yaml or NAME.cases.yaml.
func IsCaseFile(path string) bool {
	extension := filepath.Ext(path)
	name := strings.TrimSuffix(filepath.Base(path), extension)
	return slices.Contains([]string{".yaml", ".yml", ".json"}, extension) && (name == "cases" || strings.HasSuffix(name, ".cases"))
}

// hasCases reports whether the document is a table of cases of policies, which stands beside them and configures nothing. An object of the configuration
// has a kind, whatever the name of its file.
func (d *document) hasCases() bool {
	var content struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Cases      []json.RawMessage `json:"cases"`
	}
	return IsCaseFile(d.file) && kjson.UnmarshalCaseSensitivePreserveInts(d.json, &content) == nil &&
		content.APIVersion == "" && content.Kind == "" && content.Cases != nil
}
