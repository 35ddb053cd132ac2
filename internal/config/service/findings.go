package service

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// maxDetails bounds the findings of one error: a status has to fit into the headers of an answer.
const maxDetails = 20

// severityDanger is the severity of a finding that has to be acknowledged.
const severityDanger = "danger"

// withFindings returns an error with findings, as text and as details.
func withFindings(code codes.Code, message string, problems config.Problems, r *configv1.ApplyRequest) error {
	var details []protoadapt.MessageV1
	for i, p := range problems {
		if len(r.GetManifests()) == 1 {
			p.File = ""
		}
		if i < maxDetails {
			message += "\n  " + p.String()
			details = append(details, protoadapt.MessageV1Of(FindingOf(p)))
		}
	}
	if more := len(problems) - maxDetails; more > 0 {
		message += "\n  and more"
	}
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message)
	}
	return s.Err()
}

func findingsOf(problems config.Problems) []*configv1.Finding {
	out := make([]*configv1.Finding, 0, len(problems))
	for _, p := range problems {
		out = append(out, FindingOf(p))
	}
	return out
}

// FindingOf returns a problem as the contract has it.
func FindingOf(p config.Problem) *configv1.Finding {
	f := &configv1.Finding{
		Code: p.Code, Severity: string(p.Severity), Path: p.Field, Message: p.Message, Manifest: manifestOf(p.File), Line: uint32(max(p.Line, 0)),
	}
	if lint.IsDanger(p.Code) {
		f.Severity = severityDanger
	}
	if !isManifest(p.File) {
		f.File = p.File
	}
	if p.Key.Kind != "" || p.Key.Name != "" {
		f.Key = keyOf(p.Key)
	}
	return f
}

// manifestName is the name under which findings refer to a manifest of a request.
func manifestName(i int) string { return "manifests[" + strconv.Itoa(i) + "]" }

func isManifest(file string) bool { return strings.HasPrefix(file, "manifests[") }

// manifestOf returns the index of a manifest; 0 for other files.
func manifestOf(file string) uint32 {
	i, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(file, "manifests["), "]"), 10, 32)
	return uint32(i)
}

func keyOf(k config.Key) *configv1.ConfigKey { return &configv1.ConfigKey{Kind: k.Kind, Name: k.Name} }
