package observe

import (
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// maxGeneratedName is how much of generateName the API server keeps, in bytes: maxGeneratedNameLength of
// k8s.io/apiserver/pkg/storage/names.
const maxGeneratedName = 58

// objectName is the name of the object of a request for logs, records and traces: its generateName with a * if the API server has yet to
// name it, as it does with each Pod of a ReplicaSet. It is empty for Secrets.
func objectName(a *admissionv1.AdmissionRequest) string {
	switch {
	case isSecret(a):
		return ""
	case a.GetName() != "":
		return a.GetName()
	}
	if prefix := generateName(a.GetObject().GetRaw()); prefix != "" {
		return Cut(prefix, maxGeneratedName) + "*"
	}
	return ""
}

// Cut returns the first n bytes of a text, less a rune that does not fit.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

func isSecret(a *admissionv1.AdmissionRequest) bool {
	r := a.GetResource()
	return r.GetResource() == "secrets" && r.GetGroup() == ""
}

// generateName returns metadata.generateName of an object; empty without one.
func generateName(raw []byte) string {
	s := conversion.NewScanner(raw)
	if s.Next() != '{' {
		return ""
	}
	for name := range s.Members {
		if string(name) != "metadata" || s.Next() != '{' {
			s.Skip()
			continue
		}
		for field := range s.Members {
			if string(field) == "generateName" && s.Next() == '"' {
				return s.Text()
			}
			s.Skip()
		}
		return ""
	}
	return ""
}
