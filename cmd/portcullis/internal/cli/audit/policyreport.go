package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/audit"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

const (
	// reportName is the name of each report, so that the next audit replaces it.
	reportName = "portcullis-audit"
	// reportSource names the engine of results.
	reportSource = "portcullis"
	// maxReportBytes bounds the results of one report, in bytes: "kubectl apply" writes an object once more into an annotation, of at most 256 KiB.
	maxReportBytes = 192 << 10
)

// reportForm is a form of reports. The forms have the same results.
type reportForm struct {
	apiVersion        string
	kind, clusterKind string
	source            string // of a report; empty if results alone have one
}

func policyReports() reportForm {
	return reportForm{apiVersion: "wgpolicyk8s.io/v1alpha2", kind: "PolicyReport", clusterKind: "ClusterPolicyReport"}
}

func openReports() reportForm {
	return reportForm{apiVersion: "openreports.io/v1alpha1", kind: "Report", clusterKind: "ClusterReport", source: reportSource}
}

type policyReport struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   reportMetadata `json:"metadata"`
	Source     string         `json:"source,omitempty"`
	Summary    reportSummary  `json:"summary"`
	Results    []reportResult `json:"results"`
}

type reportMetadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type reportSummary struct {
	Pass  int `json:"pass"`
	Fail  int `json:"fail"`
	Warn  int `json:"warn"`
	Error int `json:"error"`
	Skip  int `json:"skip"`
}

type reportResult struct {
	Source     string            `json:"source"`
	Policy     string            `json:"policy"`
	Result     string            `json:"result"`
	Scored     bool              `json:"scored"`
	Message    string            `json:"message,omitempty"`
	Resources  []reference       `json:"resources"`
	Timestamp  timestamp         `json:"timestamp"`
	Properties map[string]string `json:"properties,omitempty"`
}

type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

type timestamp struct {
	Seconds int64 `json:"seconds"`
	Nanos   int32 `json:"nanos"`
}

// resultWords are the results of a report. Objects that pass, or would be changed, are counted alone.
func resultWords() map[audit.Result]string {
	return map[audit.Result]string{audit.Denied: "fail", audit.Warned: "warn", audit.Shadow: "warn", audit.Failed: "error"}
}

// writeReports writes a report for each namespace, and one for the objects that are in none, as YAML. The reports of namespaces without findings have none, so
// that they replace the reports of an earlier audit.
func writeReports(out, notes io.Writer, r *audit.Report, form reportForm) error {
	found := map[string][]*audit.Finding{}
	for i := range r.Findings {
		f := &r.Findings[i]
		found[f.Namespace] = append(found[f.Namespace], f)
	}
	var documents []any
	for _, n := range r.Namespaces {
		if n.Name == audit.OtherNamespaces {
			fmt.Fprintf(notes, "%d objects are in namespaces past the first %d, which have no reports: name namespaces with --namespace\n",
				n.Objects, audit.MaxNamespaces)
			continue
		}
		documents = append(documents, form.report(r, n, found[n.Name]))
	}
	return printer.WriteYAML(out, documents...)
}

// report is the report of a namespace. Its summary counts everything, and its results are as many as there is room for.
func (f reportForm) report(r *audit.Report, n *audit.NamespaceReport, findings []*audit.Finding) *policyReport {
	p := &policyReport{
		APIVersion: f.apiVersion, Kind: f.kind, Source: f.source, Results: []reportResult{},
		Metadata: reportMetadata{
			Name: reportName, Namespace: n.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": reportSource},
			Annotations: map[string]string{"portcullis.dev/audited": r.Ended.Format(time.RFC3339), "portcullis.dev/complete": fmt.Sprint(r.Complete)},
		},
		Summary: reportSummary{Pass: n.Passed + n.Changed, Fail: n.Denied, Warn: n.Warned + n.Shadow, Error: n.Errors},
	}
	if n.Name == "" {
		p.Kind = f.clusterKind
	}
	bytes := 0
	for _, finding := range findings {
		word := resultWords()[finding.Result]
		if word == "" {
			continue
		}
		one := reportResult{
			Source: reportSource, Policy: finding.Policy, Result: word, Scored: word == "fail", Message: printer.Text(finding.Message),
			Resources: []reference{{finding.APIVersion, finding.Kind, finding.Namespace, finding.Name, finding.UID}}, Timestamp: timestamp{Seconds: r.Ended.Unix()},
		}
		if finding.Policy == "" {
			one.Policy = reportSource
		}
		if _, name, ok := strings.Cut(finding.Policy, "/"); ok {
			one.Policy, one.Properties = name, map[string]string{"kind": finding.Policy[:len(finding.Policy)-len(name)-1]}
		}
		raw, err := json.Marshal(one)
		if bytes += len(raw); err != nil || bytes > maxReportBytes {
			break
		}
		p.Results = append(p.Results, one)
	}
	if left := n.Denied + n.Warned + n.Shadow + n.Errors - len(p.Results); left > 0 {
		p.Metadata.Annotations["portcullis.dev/results-left-out"] = fmt.Sprint(left)
	}
	return p
}
