package review

import (
	"cmp"
	"net/url"
	"path/filepath"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// sarifLog is a document of the Static Analysis Results Interchange Format 2.1.0, with its required fields and those that GitHub requires.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver struct {
			Name    string      `json:"name"`
			Version string      `json:"version"`
			Rules   []sarifRule `json:"rules"`
		} `json:"driver"`
	} `json:"tool"`
	Results []sarifResult `json:"results"`

	rules map[string]bool
}

type sarifRule struct {
	ID string `json:"id"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations"`
}

type sarifLocation struct {
	PhysicalLocation struct {
		ArtifactLocation struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region struct {
			StartLine int `json:"startLine"`
		} `json:"region"`
	} `json:"physicalLocation"`
}

// add adds findings. Each policy or hook is a rule; other findings have their verdict as rule.
func (run *sarifRun) add(found []*finding) {
	for _, f := range found {
		result := sarifResult{RuleID: cmp.Or(f.by, f.verdict), Level: f.level(), Message: sarifText{f.text()}, Locations: make([]sarifLocation, 1)}
		at := &result.Locations[0].PhysicalLocation
		at.ArtifactLocation.URI = (&url.URL{Path: filepath.ToSlash(f.document.file)}).String()
		at.Region.StartLine = max(f.document.line(f.field), 1)
		run.Results = append(run.Results, result)
		if run.rules == nil {
			run.rules = map[string]bool{}
		}
		if !run.rules[result.RuleID] {
			run.rules[result.RuleID] = true
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{result.RuleID})
		}
	}
}

// log is the whole document.
func (run *sarifRun) log() sarifLog {
	run.Tool.Driver.Name, run.Tool.Driver.Version = "portcullis", cli.Version()
	run.Tool.Driver.Rules, run.Results = append([]sarifRule{}, run.Tool.Driver.Rules...), append([]sarifResult{}, run.Results...) // none is []
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{*run}}
}
